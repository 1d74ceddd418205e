#!/bin/bash
#SBATCH --job-name=pipeline
#SBATCH --gres=gpu:1 --cpus-per-task=8 --mem=48G
#SBATCH --time=12:00:00
#SBATCH --output=pipeline-%j.log

set -euo pipefail

stage_001() {
    # Stage 1: read shard 1, keep what passes the filter, write it back.
    local in="shards/in-001.jsonl" out="shards/out-001.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 7
    mv "$out.tmp" "$out"
}
stage_002() {
    # Stage 2: read shard 2, keep what passes the filter, write it back.
    local in="shards/in-002.jsonl" out="shards/out-002.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 14
    mv "$out.tmp" "$out"
}
stage_003() {
    # Stage 3: read shard 3, keep what passes the filter, write it back.
    local in="shards/in-003.jsonl" out="shards/out-003.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 21
    mv "$out.tmp" "$out"
}
stage_004() {
    # Stage 4: read shard 4, keep what passes the filter, write it back.
    local in="shards/in-004.jsonl" out="shards/out-004.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 28
    mv "$out.tmp" "$out"
}
stage_005() {
    # Stage 5: read shard 5, keep what passes the filter, write it back.
    local in="shards/in-005.jsonl" out="shards/out-005.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 35
    mv "$out.tmp" "$out"
}
stage_006() {
    # Stage 6: read shard 6, keep what passes the filter, write it back.
    local in="shards/in-006.jsonl" out="shards/out-006.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 42
    mv "$out.tmp" "$out"
}
stage_007() {
    # Stage 7: read shard 7, keep what passes the filter, write it back.
    local in="shards/in-007.jsonl" out="shards/out-007.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 49
    mv "$out.tmp" "$out"
}
stage_008() {
    # Stage 8: read shard 8, keep what passes the filter, write it back.
    local in="shards/in-008.jsonl" out="shards/out-008.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 56
    mv "$out.tmp" "$out"
}
stage_009() {
    # Stage 9: read shard 9, keep what passes the filter, write it back.
    local in="shards/in-009.jsonl" out="shards/out-009.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 63
    mv "$out.tmp" "$out"
}
stage_010() {
    # Stage 10: read shard 10, keep what passes the filter, write it back.
    local in="shards/in-010.jsonl" out="shards/out-010.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 70
    mv "$out.tmp" "$out"
}
stage_011() {
    # Stage 11: read shard 11, keep what passes the filter, write it back.
    local in="shards/in-011.jsonl" out="shards/out-011.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 77
    mv "$out.tmp" "$out"
}
stage_012() {
    # Stage 12: read shard 12, keep what passes the filter, write it back.
    local in="shards/in-012.jsonl" out="shards/out-012.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 84
    mv "$out.tmp" "$out"
}
stage_013() {
    # Stage 13: read shard 13, keep what passes the filter, write it back.
    local in="shards/in-013.jsonl" out="shards/out-013.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 91
    mv "$out.tmp" "$out"
}
stage_014() {
    # Stage 14: read shard 14, keep what passes the filter, write it back.
    local in="shards/in-014.jsonl" out="shards/out-014.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 98
    mv "$out.tmp" "$out"
}
stage_015() {
    # Stage 15: read shard 15, keep what passes the filter, write it back.
    local in="shards/in-015.jsonl" out="shards/out-015.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 105
    mv "$out.tmp" "$out"
}
stage_016() {
    # Stage 16: read shard 16, keep what passes the filter, write it back.
    local in="shards/in-016.jsonl" out="shards/out-016.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 112
    mv "$out.tmp" "$out"
}
stage_017() {
    # Stage 17: read shard 17, keep what passes the filter, write it back.
    local in="shards/in-017.jsonl" out="shards/out-017.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 119
    mv "$out.tmp" "$out"
}
stage_018() {
    # Stage 18: read shard 18, keep what passes the filter, write it back.
    local in="shards/in-018.jsonl" out="shards/out-018.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 126
    mv "$out.tmp" "$out"
}
stage_019() {
    # Stage 19: read shard 19, keep what passes the filter, write it back.
    local in="shards/in-019.jsonl" out="shards/out-019.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 133
    mv "$out.tmp" "$out"
}
stage_020() {
    # Stage 20: read shard 20, keep what passes the filter, write it back.
    local in="shards/in-020.jsonl" out="shards/out-020.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 140
    mv "$out.tmp" "$out"
}
stage_021() {
    # Stage 21: read shard 21, keep what passes the filter, write it back.
    local in="shards/in-021.jsonl" out="shards/out-021.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 147
    mv "$out.tmp" "$out"
}
stage_022() {
    # Stage 22: read shard 22, keep what passes the filter, write it back.
    local in="shards/in-022.jsonl" out="shards/out-022.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 154
    mv "$out.tmp" "$out"
}
stage_023() {
    # Stage 23: read shard 23, keep what passes the filter, write it back.
    local in="shards/in-023.jsonl" out="shards/out-023.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 161
    mv "$out.tmp" "$out"
}
stage_024() {
    # Stage 24: read shard 24, keep what passes the filter, write it back.
    local in="shards/in-024.jsonl" out="shards/out-024.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 168
    mv "$out.tmp" "$out"
}
stage_025() {
    # Stage 25: read shard 25, keep what passes the filter, write it back.
    local in="shards/in-025.jsonl" out="shards/out-025.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 175
    mv "$out.tmp" "$out"
}
stage_026() {
    # Stage 26: read shard 26, keep what passes the filter, write it back.
    local in="shards/in-026.jsonl" out="shards/out-026.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 182
    mv "$out.tmp" "$out"
}
stage_027() {
    # Stage 27: read shard 27, keep what passes the filter, write it back.
    local in="shards/in-027.jsonl" out="shards/out-027.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 189
    mv "$out.tmp" "$out"
}
stage_028() {
    # Stage 28: read shard 28, keep what passes the filter, write it back.
    local in="shards/in-028.jsonl" out="shards/out-028.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 196
    mv "$out.tmp" "$out"
}
stage_029() {
    # Stage 29: read shard 29, keep what passes the filter, write it back.
    local in="shards/in-029.jsonl" out="shards/out-029.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 203
    mv "$out.tmp" "$out"
}
stage_030() {
    # Stage 30: read shard 30, keep what passes the filter, write it back.
    local in="shards/in-030.jsonl" out="shards/out-030.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 210
    mv "$out.tmp" "$out"
}
stage_031() {
    # Stage 31: read shard 31, keep what passes the filter, write it back.
    local in="shards/in-031.jsonl" out="shards/out-031.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 217
    mv "$out.tmp" "$out"
}
stage_032() {
    # Stage 32: read shard 32, keep what passes the filter, write it back.
    local in="shards/in-032.jsonl" out="shards/out-032.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 224
    mv "$out.tmp" "$out"
}
stage_033() {
    # Stage 33: read shard 33, keep what passes the filter, write it back.
    local in="shards/in-033.jsonl" out="shards/out-033.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 231
    mv "$out.tmp" "$out"
}
stage_034() {
    # Stage 34: read shard 34, keep what passes the filter, write it back.
    local in="shards/in-034.jsonl" out="shards/out-034.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 238
    mv "$out.tmp" "$out"
}
stage_035() {
    # Stage 35: read shard 35, keep what passes the filter, write it back.
    local in="shards/in-035.jsonl" out="shards/out-035.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 245
    mv "$out.tmp" "$out"
}
stage_036() {
    # Stage 36: read shard 36, keep what passes the filter, write it back.
    local in="shards/in-036.jsonl" out="shards/out-036.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 252
    mv "$out.tmp" "$out"
}
stage_037() {
    # Stage 37: read shard 37, keep what passes the filter, write it back.
    local in="shards/in-037.jsonl" out="shards/out-037.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 259
    mv "$out.tmp" "$out"
}
stage_038() {
    # Stage 38: read shard 38, keep what passes the filter, write it back.
    local in="shards/in-038.jsonl" out="shards/out-038.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 266
    mv "$out.tmp" "$out"
}
stage_039() {
    # Stage 39: read shard 39, keep what passes the filter, write it back.
    local in="shards/in-039.jsonl" out="shards/out-039.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 273
    mv "$out.tmp" "$out"
}
stage_040() {
    # Stage 40: read shard 40, keep what passes the filter, write it back.
    local in="shards/in-040.jsonl" out="shards/out-040.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 280
    mv "$out.tmp" "$out"
}
stage_041() {
    # Stage 41: read shard 41, keep what passes the filter, write it back.
    local in="shards/in-041.jsonl" out="shards/out-041.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 287
    mv "$out.tmp" "$out"
}
stage_042() {
    # Stage 42: read shard 42, keep what passes the filter, write it back.
    local in="shards/in-042.jsonl" out="shards/out-042.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 294
    mv "$out.tmp" "$out"
}
stage_043() {
    # Stage 43: read shard 43, keep what passes the filter, write it back.
    local in="shards/in-043.jsonl" out="shards/out-043.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 301
    mv "$out.tmp" "$out"
}
stage_044() {
    # Stage 44: read shard 44, keep what passes the filter, write it back.
    local in="shards/in-044.jsonl" out="shards/out-044.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 308
    mv "$out.tmp" "$out"
}
stage_045() {
    # Stage 45: read shard 45, keep what passes the filter, write it back.
    local in="shards/in-045.jsonl" out="shards/out-045.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 315
    mv "$out.tmp" "$out"
}
stage_046() {
    # Stage 46: read shard 46, keep what passes the filter, write it back.
    local in="shards/in-046.jsonl" out="shards/out-046.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 322
    mv "$out.tmp" "$out"
}
stage_047() {
    # Stage 47: read shard 47, keep what passes the filter, write it back.
    local in="shards/in-047.jsonl" out="shards/out-047.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 329
    mv "$out.tmp" "$out"
}
stage_048() {
    # Stage 48: read shard 48, keep what passes the filter, write it back.
    local in="shards/in-048.jsonl" out="shards/out-048.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 336
    mv "$out.tmp" "$out"
}
stage_049() {
    # Stage 49: read shard 49, keep what passes the filter, write it back.
    local in="shards/in-049.jsonl" out="shards/out-049.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 343
    mv "$out.tmp" "$out"
}
stage_050() {
    # Stage 50: read shard 50, keep what passes the filter, write it back.
    local in="shards/in-050.jsonl" out="shards/out-050.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 350
    mv "$out.tmp" "$out"
}
stage_051() {
    # Stage 51: read shard 51, keep what passes the filter, write it back.
    local in="shards/in-051.jsonl" out="shards/out-051.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 357
    mv "$out.tmp" "$out"
}
stage_052() {
    # Stage 52: read shard 52, keep what passes the filter, write it back.
    local in="shards/in-052.jsonl" out="shards/out-052.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 364
    mv "$out.tmp" "$out"
}
stage_053() {
    # Stage 53: read shard 53, keep what passes the filter, write it back.
    local in="shards/in-053.jsonl" out="shards/out-053.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 371
    mv "$out.tmp" "$out"
}
stage_054() {
    # Stage 54: read shard 54, keep what passes the filter, write it back.
    local in="shards/in-054.jsonl" out="shards/out-054.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 378
    mv "$out.tmp" "$out"
}
stage_055() {
    # Stage 55: read shard 55, keep what passes the filter, write it back.
    local in="shards/in-055.jsonl" out="shards/out-055.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 385
    mv "$out.tmp" "$out"
}
stage_056() {
    # Stage 56: read shard 56, keep what passes the filter, write it back.
    local in="shards/in-056.jsonl" out="shards/out-056.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 392
    mv "$out.tmp" "$out"
}
stage_057() {
    # Stage 57: read shard 57, keep what passes the filter, write it back.
    local in="shards/in-057.jsonl" out="shards/out-057.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 399
    mv "$out.tmp" "$out"
}
stage_058() {
    # Stage 58: read shard 58, keep what passes the filter, write it back.
    local in="shards/in-058.jsonl" out="shards/out-058.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 406
    mv "$out.tmp" "$out"
}
stage_059() {
    # Stage 59: read shard 59, keep what passes the filter, write it back.
    local in="shards/in-059.jsonl" out="shards/out-059.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 413
    mv "$out.tmp" "$out"
}
stage_060() {
    # Stage 60: read shard 60, keep what passes the filter, write it back.
    local in="shards/in-060.jsonl" out="shards/out-060.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 420
    mv "$out.tmp" "$out"
}
stage_061() {
    # Stage 61: read shard 61, keep what passes the filter, write it back.
    local in="shards/in-061.jsonl" out="shards/out-061.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 427
    mv "$out.tmp" "$out"
}
stage_062() {
    # Stage 62: read shard 62, keep what passes the filter, write it back.
    local in="shards/in-062.jsonl" out="shards/out-062.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 434
    mv "$out.tmp" "$out"
}
stage_063() {
    # Stage 63: read shard 63, keep what passes the filter, write it back.
    local in="shards/in-063.jsonl" out="shards/out-063.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 441
    mv "$out.tmp" "$out"
}
stage_064() {
    # Stage 64: read shard 64, keep what passes the filter, write it back.
    local in="shards/in-064.jsonl" out="shards/out-064.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 448
    mv "$out.tmp" "$out"
}
stage_065() {
    # Stage 65: read shard 65, keep what passes the filter, write it back.
    local in="shards/in-065.jsonl" out="shards/out-065.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 455
    mv "$out.tmp" "$out"
}
stage_066() {
    # Stage 66: read shard 66, keep what passes the filter, write it back.
    local in="shards/in-066.jsonl" out="shards/out-066.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 462
    mv "$out.tmp" "$out"
}
stage_067() {
    # Stage 67: read shard 67, keep what passes the filter, write it back.
    local in="shards/in-067.jsonl" out="shards/out-067.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 469
    mv "$out.tmp" "$out"
}
stage_068() {
    # Stage 68: read shard 68, keep what passes the filter, write it back.
    local in="shards/in-068.jsonl" out="shards/out-068.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 476
    mv "$out.tmp" "$out"
}
stage_069() {
    # Stage 69: read shard 69, keep what passes the filter, write it back.
    local in="shards/in-069.jsonl" out="shards/out-069.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 483
    mv "$out.tmp" "$out"
}
stage_070() {
    # Stage 70: read shard 70, keep what passes the filter, write it back.
    local in="shards/in-070.jsonl" out="shards/out-070.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 490
    mv "$out.tmp" "$out"
}
stage_071() {
    # Stage 71: read shard 71, keep what passes the filter, write it back.
    local in="shards/in-071.jsonl" out="shards/out-071.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 497
    mv "$out.tmp" "$out"
}
stage_072() {
    # Stage 72: read shard 72, keep what passes the filter, write it back.
    local in="shards/in-072.jsonl" out="shards/out-072.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 504
    mv "$out.tmp" "$out"
}
stage_073() {
    # Stage 73: read shard 73, keep what passes the filter, write it back.
    local in="shards/in-073.jsonl" out="shards/out-073.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 511
    mv "$out.tmp" "$out"
}
stage_074() {
    # Stage 74: read shard 74, keep what passes the filter, write it back.
    local in="shards/in-074.jsonl" out="shards/out-074.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 518
    mv "$out.tmp" "$out"
}
stage_075() {
    # Stage 75: read shard 75, keep what passes the filter, write it back.
    local in="shards/in-075.jsonl" out="shards/out-075.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 525
    mv "$out.tmp" "$out"
}
stage_076() {
    # Stage 76: read shard 76, keep what passes the filter, write it back.
    local in="shards/in-076.jsonl" out="shards/out-076.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 532
    mv "$out.tmp" "$out"
}
stage_077() {
    # Stage 77: read shard 77, keep what passes the filter, write it back.
    local in="shards/in-077.jsonl" out="shards/out-077.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 539
    mv "$out.tmp" "$out"
}
stage_078() {
    # Stage 78: read shard 78, keep what passes the filter, write it back.
    local in="shards/in-078.jsonl" out="shards/out-078.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 546
    mv "$out.tmp" "$out"
}
stage_079() {
    # Stage 79: read shard 79, keep what passes the filter, write it back.
    local in="shards/in-079.jsonl" out="shards/out-079.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 553
    mv "$out.tmp" "$out"
}
stage_080() {
    # Stage 80: read shard 80, keep what passes the filter, write it back.
    local in="shards/in-080.jsonl" out="shards/out-080.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 560
    mv "$out.tmp" "$out"
}
stage_081() {
    # Stage 81: read shard 81, keep what passes the filter, write it back.
    local in="shards/in-081.jsonl" out="shards/out-081.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 567
    mv "$out.tmp" "$out"
}
stage_082() {
    # Stage 82: read shard 82, keep what passes the filter, write it back.
    local in="shards/in-082.jsonl" out="shards/out-082.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 574
    mv "$out.tmp" "$out"
}
stage_083() {
    # Stage 83: read shard 83, keep what passes the filter, write it back.
    local in="shards/in-083.jsonl" out="shards/out-083.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 581
    mv "$out.tmp" "$out"
}
stage_084() {
    # Stage 84: read shard 84, keep what passes the filter, write it back.
    local in="shards/in-084.jsonl" out="shards/out-084.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 588
    mv "$out.tmp" "$out"
}
stage_085() {
    # Stage 85: read shard 85, keep what passes the filter, write it back.
    local in="shards/in-085.jsonl" out="shards/out-085.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 595
    mv "$out.tmp" "$out"
}
stage_086() {
    # Stage 86: read shard 86, keep what passes the filter, write it back.
    local in="shards/in-086.jsonl" out="shards/out-086.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 602
    mv "$out.tmp" "$out"
}
stage_087() {
    # Stage 87: read shard 87, keep what passes the filter, write it back.
    local in="shards/in-087.jsonl" out="shards/out-087.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 609
    mv "$out.tmp" "$out"
}
stage_088() {
    # Stage 88: read shard 88, keep what passes the filter, write it back.
    local in="shards/in-088.jsonl" out="shards/out-088.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 616
    mv "$out.tmp" "$out"
}
stage_089() {
    # Stage 89: read shard 89, keep what passes the filter, write it back.
    local in="shards/in-089.jsonl" out="shards/out-089.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 623
    mv "$out.tmp" "$out"
}
stage_090() {
    # Stage 90: read shard 90, keep what passes the filter, write it back.
    local in="shards/in-090.jsonl" out="shards/out-090.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 630
    mv "$out.tmp" "$out"
}
stage_091() {
    # Stage 91: read shard 91, keep what passes the filter, write it back.
    local in="shards/in-091.jsonl" out="shards/out-091.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 637
    mv "$out.tmp" "$out"
}
stage_092() {
    # Stage 92: read shard 92, keep what passes the filter, write it back.
    local in="shards/in-092.jsonl" out="shards/out-092.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 644
    mv "$out.tmp" "$out"
}
stage_093() {
    # Stage 93: read shard 93, keep what passes the filter, write it back.
    local in="shards/in-093.jsonl" out="shards/out-093.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 651
    mv "$out.tmp" "$out"
}
stage_094() {
    # Stage 94: read shard 94, keep what passes the filter, write it back.
    local in="shards/in-094.jsonl" out="shards/out-094.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 658
    mv "$out.tmp" "$out"
}
stage_095() {
    # Stage 95: read shard 95, keep what passes the filter, write it back.
    local in="shards/in-095.jsonl" out="shards/out-095.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 665
    mv "$out.tmp" "$out"
}
stage_096() {
    # Stage 96: read shard 96, keep what passes the filter, write it back.
    local in="shards/in-096.jsonl" out="shards/out-096.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 672
    mv "$out.tmp" "$out"
}
stage_097() {
    # Stage 97: read shard 97, keep what passes the filter, write it back.
    local in="shards/in-097.jsonl" out="shards/out-097.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 679
    mv "$out.tmp" "$out"
}
stage_098() {
    # Stage 98: read shard 98, keep what passes the filter, write it back.
    local in="shards/in-098.jsonl" out="shards/out-098.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 686
    mv "$out.tmp" "$out"
}
stage_099() {
    # Stage 99: read shard 99, keep what passes the filter, write it back.
    local in="shards/in-099.jsonl" out="shards/out-099.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 693
    mv "$out.tmp" "$out"
}
stage_100() {
    # Stage 100: read shard 100, keep what passes the filter, write it back.
    local in="shards/in-100.jsonl" out="shards/out-100.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 700
    mv "$out.tmp" "$out"
}
stage_101() {
    # Stage 101: read shard 101, keep what passes the filter, write it back.
    local in="shards/in-101.jsonl" out="shards/out-101.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 707
    mv "$out.tmp" "$out"
}
stage_102() {
    # Stage 102: read shard 102, keep what passes the filter, write it back.
    local in="shards/in-102.jsonl" out="shards/out-102.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 714
    mv "$out.tmp" "$out"
}
stage_103() {
    # Stage 103: read shard 103, keep what passes the filter, write it back.
    local in="shards/in-103.jsonl" out="shards/out-103.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 721
    mv "$out.tmp" "$out"
}
stage_104() {
    # Stage 104: read shard 104, keep what passes the filter, write it back.
    local in="shards/in-104.jsonl" out="shards/out-104.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 728
    mv "$out.tmp" "$out"
}
stage_105() {
    # Stage 105: read shard 105, keep what passes the filter, write it back.
    local in="shards/in-105.jsonl" out="shards/out-105.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 735
    mv "$out.tmp" "$out"
}
stage_106() {
    # Stage 106: read shard 106, keep what passes the filter, write it back.
    local in="shards/in-106.jsonl" out="shards/out-106.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 742
    mv "$out.tmp" "$out"
}
stage_107() {
    # Stage 107: read shard 107, keep what passes the filter, write it back.
    local in="shards/in-107.jsonl" out="shards/out-107.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 749
    mv "$out.tmp" "$out"
}
stage_108() {
    # Stage 108: read shard 108, keep what passes the filter, write it back.
    local in="shards/in-108.jsonl" out="shards/out-108.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 756
    mv "$out.tmp" "$out"
}
stage_109() {
    # Stage 109: read shard 109, keep what passes the filter, write it back.
    local in="shards/in-109.jsonl" out="shards/out-109.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 763
    mv "$out.tmp" "$out"
}
stage_110() {
    # Stage 110: read shard 110, keep what passes the filter, write it back.
    local in="shards/in-110.jsonl" out="shards/out-110.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 770
    mv "$out.tmp" "$out"
}
stage_111() {
    # Stage 111: read shard 111, keep what passes the filter, write it back.
    local in="shards/in-111.jsonl" out="shards/out-111.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 777
    mv "$out.tmp" "$out"
}
stage_112() {
    # Stage 112: read shard 112, keep what passes the filter, write it back.
    local in="shards/in-112.jsonl" out="shards/out-112.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 784
    mv "$out.tmp" "$out"
}
stage_113() {
    # Stage 113: read shard 113, keep what passes the filter, write it back.
    local in="shards/in-113.jsonl" out="shards/out-113.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 791
    mv "$out.tmp" "$out"
}
stage_114() {
    # Stage 114: read shard 114, keep what passes the filter, write it back.
    local in="shards/in-114.jsonl" out="shards/out-114.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 798
    mv "$out.tmp" "$out"
}
stage_115() {
    # Stage 115: read shard 115, keep what passes the filter, write it back.
    local in="shards/in-115.jsonl" out="shards/out-115.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 805
    mv "$out.tmp" "$out"
}
stage_116() {
    # Stage 116: read shard 116, keep what passes the filter, write it back.
    local in="shards/in-116.jsonl" out="shards/out-116.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 812
    mv "$out.tmp" "$out"
}
stage_117() {
    # Stage 117: read shard 117, keep what passes the filter, write it back.
    local in="shards/in-117.jsonl" out="shards/out-117.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 819
    mv "$out.tmp" "$out"
}
stage_118() {
    # Stage 118: read shard 118, keep what passes the filter, write it back.
    local in="shards/in-118.jsonl" out="shards/out-118.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 826
    mv "$out.tmp" "$out"
}
stage_119() {
    # Stage 119: read shard 119, keep what passes the filter, write it back.
    local in="shards/in-119.jsonl" out="shards/out-119.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 833
    mv "$out.tmp" "$out"
}
stage_120() {
    # Stage 120: read shard 120, keep what passes the filter, write it back.
    local in="shards/in-120.jsonl" out="shards/out-120.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 840
    mv "$out.tmp" "$out"
}
stage_121() {
    # Stage 121: read shard 121, keep what passes the filter, write it back.
    local in="shards/in-121.jsonl" out="shards/out-121.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 847
    mv "$out.tmp" "$out"
}
stage_122() {
    # Stage 122: read shard 122, keep what passes the filter, write it back.
    local in="shards/in-122.jsonl" out="shards/out-122.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 854
    mv "$out.tmp" "$out"
}
stage_123() {
    # Stage 123: read shard 123, keep what passes the filter, write it back.
    local in="shards/in-123.jsonl" out="shards/out-123.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 861
    mv "$out.tmp" "$out"
}
stage_124() {
    # Stage 124: read shard 124, keep what passes the filter, write it back.
    local in="shards/in-124.jsonl" out="shards/out-124.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 868
    mv "$out.tmp" "$out"
}
stage_125() {
    # Stage 125: read shard 125, keep what passes the filter, write it back.
    local in="shards/in-125.jsonl" out="shards/out-125.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 875
    mv "$out.tmp" "$out"
}
stage_126() {
    # Stage 126: read shard 126, keep what passes the filter, write it back.
    local in="shards/in-126.jsonl" out="shards/out-126.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 882
    mv "$out.tmp" "$out"
}
stage_127() {
    # Stage 127: read shard 127, keep what passes the filter, write it back.
    local in="shards/in-127.jsonl" out="shards/out-127.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 889
    mv "$out.tmp" "$out"
}
stage_128() {
    # Stage 128: read shard 128, keep what passes the filter, write it back.
    local in="shards/in-128.jsonl" out="shards/out-128.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 896
    mv "$out.tmp" "$out"
}
stage_129() {
    # Stage 129: read shard 129, keep what passes the filter, write it back.
    local in="shards/in-129.jsonl" out="shards/out-129.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 903
    mv "$out.tmp" "$out"
}
stage_130() {
    # Stage 130: read shard 130, keep what passes the filter, write it back.
    local in="shards/in-130.jsonl" out="shards/out-130.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 910
    mv "$out.tmp" "$out"
}
stage_131() {
    # Stage 131: read shard 131, keep what passes the filter, write it back.
    local in="shards/in-131.jsonl" out="shards/out-131.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 917
    mv "$out.tmp" "$out"
}
stage_132() {
    # Stage 132: read shard 132, keep what passes the filter, write it back.
    local in="shards/in-132.jsonl" out="shards/out-132.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 924
    mv "$out.tmp" "$out"
}
stage_133() {
    # Stage 133: read shard 133, keep what passes the filter, write it back.
    local in="shards/in-133.jsonl" out="shards/out-133.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 931
    mv "$out.tmp" "$out"
}
stage_134() {
    # Stage 134: read shard 134, keep what passes the filter, write it back.
    local in="shards/in-134.jsonl" out="shards/out-134.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 938
    mv "$out.tmp" "$out"
}
stage_135() {
    # Stage 135: read shard 135, keep what passes the filter, write it back.
    local in="shards/in-135.jsonl" out="shards/out-135.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 945
    mv "$out.tmp" "$out"
}
stage_136() {
    # Stage 136: read shard 136, keep what passes the filter, write it back.
    local in="shards/in-136.jsonl" out="shards/out-136.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 952
    mv "$out.tmp" "$out"
}
stage_137() {
    # Stage 137: read shard 137, keep what passes the filter, write it back.
    local in="shards/in-137.jsonl" out="shards/out-137.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 959
    mv "$out.tmp" "$out"
}
stage_138() {
    # Stage 138: read shard 138, keep what passes the filter, write it back.
    local in="shards/in-138.jsonl" out="shards/out-138.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 966
    mv "$out.tmp" "$out"
}
stage_139() {
    # Stage 139: read shard 139, keep what passes the filter, write it back.
    local in="shards/in-139.jsonl" out="shards/out-139.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 973
    mv "$out.tmp" "$out"
}
stage_140() {
    # Stage 140: read shard 140, keep what passes the filter, write it back.
    local in="shards/in-140.jsonl" out="shards/out-140.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 980
    mv "$out.tmp" "$out"
}
stage_141() {
    # Stage 141: read shard 141, keep what passes the filter, write it back.
    local in="shards/in-141.jsonl" out="shards/out-141.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 987
    mv "$out.tmp" "$out"
}
stage_142() {
    # Stage 142: read shard 142, keep what passes the filter, write it back.
    local in="shards/in-142.jsonl" out="shards/out-142.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 994
    mv "$out.tmp" "$out"
}
stage_143() {
    # Stage 143: read shard 143, keep what passes the filter, write it back.
    local in="shards/in-143.jsonl" out="shards/out-143.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1001
    mv "$out.tmp" "$out"
}
stage_144() {
    # Stage 144: read shard 144, keep what passes the filter, write it back.
    local in="shards/in-144.jsonl" out="shards/out-144.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1008
    mv "$out.tmp" "$out"
}
stage_145() {
    # Stage 145: read shard 145, keep what passes the filter, write it back.
    local in="shards/in-145.jsonl" out="shards/out-145.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1015
    mv "$out.tmp" "$out"
}
stage_146() {
    # Stage 146: read shard 146, keep what passes the filter, write it back.
    local in="shards/in-146.jsonl" out="shards/out-146.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1022
    mv "$out.tmp" "$out"
}
stage_147() {
    # Stage 147: read shard 147, keep what passes the filter, write it back.
    local in="shards/in-147.jsonl" out="shards/out-147.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1029
    mv "$out.tmp" "$out"
}
stage_148() {
    # Stage 148: read shard 148, keep what passes the filter, write it back.
    local in="shards/in-148.jsonl" out="shards/out-148.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1036
    mv "$out.tmp" "$out"
}
stage_149() {
    # Stage 149: read shard 149, keep what passes the filter, write it back.
    local in="shards/in-149.jsonl" out="shards/out-149.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1043
    mv "$out.tmp" "$out"
}
stage_150() {
    # Stage 150: read shard 150, keep what passes the filter, write it back.
    local in="shards/in-150.jsonl" out="shards/out-150.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1050
    mv "$out.tmp" "$out"
}
stage_151() {
    # Stage 151: read shard 151, keep what passes the filter, write it back.
    local in="shards/in-151.jsonl" out="shards/out-151.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1057
    mv "$out.tmp" "$out"
}
stage_152() {
    # Stage 152: read shard 152, keep what passes the filter, write it back.
    local in="shards/in-152.jsonl" out="shards/out-152.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1064
    mv "$out.tmp" "$out"
}
stage_153() {
    # Stage 153: read shard 153, keep what passes the filter, write it back.
    local in="shards/in-153.jsonl" out="shards/out-153.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1071
    mv "$out.tmp" "$out"
}
stage_154() {
    # Stage 154: read shard 154, keep what passes the filter, write it back.
    local in="shards/in-154.jsonl" out="shards/out-154.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1078
    mv "$out.tmp" "$out"
}
stage_155() {
    # Stage 155: read shard 155, keep what passes the filter, write it back.
    local in="shards/in-155.jsonl" out="shards/out-155.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1085
    mv "$out.tmp" "$out"
}
stage_156() {
    # Stage 156: read shard 156, keep what passes the filter, write it back.
    local in="shards/in-156.jsonl" out="shards/out-156.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1092
    mv "$out.tmp" "$out"
}
stage_157() {
    # Stage 157: read shard 157, keep what passes the filter, write it back.
    local in="shards/in-157.jsonl" out="shards/out-157.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1099
    mv "$out.tmp" "$out"
}
stage_158() {
    # Stage 158: read shard 158, keep what passes the filter, write it back.
    local in="shards/in-158.jsonl" out="shards/out-158.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1106
    mv "$out.tmp" "$out"
}
stage_159() {
    # Stage 159: read shard 159, keep what passes the filter, write it back.
    local in="shards/in-159.jsonl" out="shards/out-159.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1113
    mv "$out.tmp" "$out"
}
stage_160() {
    # Stage 160: read shard 160, keep what passes the filter, write it back.
    local in="shards/in-160.jsonl" out="shards/out-160.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1120
    mv "$out.tmp" "$out"
}
stage_161() {
    # Stage 161: read shard 161, keep what passes the filter, write it back.
    local in="shards/in-161.jsonl" out="shards/out-161.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1127
    mv "$out.tmp" "$out"
}
stage_162() {
    # Stage 162: read shard 162, keep what passes the filter, write it back.
    local in="shards/in-162.jsonl" out="shards/out-162.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1134
    mv "$out.tmp" "$out"
}
stage_163() {
    # Stage 163: read shard 163, keep what passes the filter, write it back.
    local in="shards/in-163.jsonl" out="shards/out-163.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1141
    mv "$out.tmp" "$out"
}
stage_164() {
    # Stage 164: read shard 164, keep what passes the filter, write it back.
    local in="shards/in-164.jsonl" out="shards/out-164.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1148
    mv "$out.tmp" "$out"
}
stage_165() {
    # Stage 165: read shard 165, keep what passes the filter, write it back.
    local in="shards/in-165.jsonl" out="shards/out-165.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1155
    mv "$out.tmp" "$out"
}
stage_166() {
    # Stage 166: read shard 166, keep what passes the filter, write it back.
    local in="shards/in-166.jsonl" out="shards/out-166.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1162
    mv "$out.tmp" "$out"
}
stage_167() {
    # Stage 167: read shard 167, keep what passes the filter, write it back.
    local in="shards/in-167.jsonl" out="shards/out-167.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1169
    mv "$out.tmp" "$out"
}
stage_168() {
    # Stage 168: read shard 168, keep what passes the filter, write it back.
    local in="shards/in-168.jsonl" out="shards/out-168.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1176
    mv "$out.tmp" "$out"
}
stage_169() {
    # Stage 169: read shard 169, keep what passes the filter, write it back.
    local in="shards/in-169.jsonl" out="shards/out-169.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1183
    mv "$out.tmp" "$out"
}
stage_170() {
    # Stage 170: read shard 170, keep what passes the filter, write it back.
    local in="shards/in-170.jsonl" out="shards/out-170.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1190
    mv "$out.tmp" "$out"
}
stage_171() {
    # Stage 171: read shard 171, keep what passes the filter, write it back.
    local in="shards/in-171.jsonl" out="shards/out-171.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1197
    mv "$out.tmp" "$out"
}
stage_172() {
    # Stage 172: read shard 172, keep what passes the filter, write it back.
    local in="shards/in-172.jsonl" out="shards/out-172.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1204
    mv "$out.tmp" "$out"
}
stage_173() {
    # Stage 173: read shard 173, keep what passes the filter, write it back.
    local in="shards/in-173.jsonl" out="shards/out-173.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1211
    mv "$out.tmp" "$out"
}
stage_174() {
    # Stage 174: read shard 174, keep what passes the filter, write it back.
    local in="shards/in-174.jsonl" out="shards/out-174.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1218
    mv "$out.tmp" "$out"
}
stage_175() {
    # Stage 175: read shard 175, keep what passes the filter, write it back.
    local in="shards/in-175.jsonl" out="shards/out-175.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1225
    mv "$out.tmp" "$out"
}
stage_176() {
    # Stage 176: read shard 176, keep what passes the filter, write it back.
    local in="shards/in-176.jsonl" out="shards/out-176.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1232
    mv "$out.tmp" "$out"
}
stage_177() {
    # Stage 177: read shard 177, keep what passes the filter, write it back.
    local in="shards/in-177.jsonl" out="shards/out-177.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1239
    mv "$out.tmp" "$out"
}
stage_178() {
    # Stage 178: read shard 178, keep what passes the filter, write it back.
    local in="shards/in-178.jsonl" out="shards/out-178.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1246
    mv "$out.tmp" "$out"
}
stage_179() {
    # Stage 179: read shard 179, keep what passes the filter, write it back.
    local in="shards/in-179.jsonl" out="shards/out-179.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1253
    mv "$out.tmp" "$out"
}
stage_180() {
    # Stage 180: read shard 180, keep what passes the filter, write it back.
    local in="shards/in-180.jsonl" out="shards/out-180.jsonl"
    [[ -s "$out" ]] && return 0
    python filter.py --input "$in" --output "$out.tmp" --seed 1260
    mv "$out.tmp" "$out"
}
stage_001
stage_002
stage_003
stage_004
stage_005
stage_006
stage_007
stage_008
stage_009
stage_010
stage_011
stage_012
stage_013
stage_014
stage_015
stage_016
stage_017
stage_018
stage_019
stage_020
stage_021
stage_022
stage_023
stage_024
stage_025
stage_026
stage_027
stage_028
stage_029
stage_030
stage_031
stage_032
stage_033
stage_034
stage_035
stage_036
stage_037
stage_038
stage_039
stage_040
stage_041
stage_042
stage_043
stage_044
stage_045
stage_046
stage_047
stage_048
stage_049
stage_050
stage_051
stage_052
stage_053
stage_054
stage_055
stage_056
stage_057
stage_058
stage_059
stage_060
stage_061
stage_062
stage_063
stage_064
stage_065
stage_066
stage_067
stage_068
stage_069
stage_070
stage_071
stage_072
stage_073
stage_074
stage_075
stage_076
stage_077
stage_078
stage_079
stage_080
stage_081
stage_082
stage_083
stage_084
stage_085
stage_086
stage_087
stage_088
stage_089
stage_090
stage_091
stage_092
stage_093
stage_094
stage_095
stage_096
stage_097
stage_098
stage_099
stage_100
stage_101
stage_102
stage_103
stage_104
stage_105
stage_106
stage_107
stage_108
stage_109
stage_110
stage_111
stage_112
stage_113
stage_114
stage_115
stage_116
stage_117
stage_118
stage_119
stage_120
stage_121
stage_122
stage_123
stage_124
stage_125
stage_126
stage_127
stage_128
stage_129
stage_130
stage_131
stage_132
stage_133
stage_134
stage_135
stage_136
stage_137
stage_138
stage_139
stage_140
stage_141
stage_142
stage_143
stage_144
stage_145
stage_146
stage_147
stage_148
stage_149
stage_150
stage_151
stage_152
stage_153
stage_154
stage_155
stage_156
stage_157
stage_158
stage_159
stage_160
stage_161
stage_162
stage_163
stage_164
stage_165
stage_166
stage_167
stage_168
stage_169
stage_170
stage_171
stage_172
stage_173
stage_174
stage_175
stage_176
stage_177
stage_178
stage_179
stage_180
