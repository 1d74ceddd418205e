package main

// The users that the jobs belong to, and the uid of the first.
const firstUID = 31001

var people = []string{"ann", "ben", "chen", "dora"}

// nodes are the cluster's nodes, in the form that berth dev takes.
const nodes = "1x4xA100-SXM4-80GB,1x4xH100-SXM5-80GB"

// jobs are the jobs that run while the picture is taken, in order: their arguments to berth
// submit, and to berth sim-job.
var jobs = []struct{ owner, name, asks, does string }{
	{"dora", "qwen2-7b-dpo", "--gpus 2 --gpu-type h100 --exclusive --time 24h", "--gpu-mem 71GiB --gpu-util 94 --seconds 40000"},
	{"chen", "sdxl-lora", "--gpus 1 --gpu-type h100 --gpu-mem 46G --time 5h", "--gpu-mem 43GiB --gpu-util 71 --seconds 40000"},
	{"ann", "vit-l-pretrain", "--gpus 1 --gpu-type h100 --gpu-mem 52G --time 8h", "--gpu-mem 47GiB --gpu-util 62 --seconds 40000"},
	{"ann", "mae-base", "--gpus 1 --gpu-type a100 --gpu-mem 34G --time 4h", "--gpu-mem 28GiB --gpu-util 42 --seconds 40000"},
	{"ben", "bert-large-ft", "--gpus 1 --gpu-type a100 --gpu-mem 24G --time 4h", "--gpu-mem 19GiB --gpu-util 31 --seconds 40000"},
	{"chen", "whisper-small", "--gpus 1 --gpu-type a100 --gpu-mem 30G --time 6h", "--gpu-mem 24GiB --gpu-util 36 --seconds 40000"},
	{"ann", "resnet50-b256", "--gpus 1 --gpu-type a100 --gpu-mem 26G --time 3h", "--gpu-mem 21GiB --gpu-util 28 --seconds 40000"},
	{"ben", "lr-sweep", "--gpus 1 --gpu-mem 16G --time 10 --array 0-89%5", "--gpu-mem 13GiB --gpu-util 19 --seconds 23 --ramp 9"},
	{"dora", "mmlu-eval", "--gpus 1 --gpu-mem 22G --time 10 --array 0-79%4", "--gpu-mem 19GiB --gpu-util 37 --seconds 17 --ramp 4"},
}
