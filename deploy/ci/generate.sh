#!/usr/bin/env bash
# generate.sh write|check: regenerates the code of proto/, the reference of commands and
# NOTICE, or compares what is committed with what would be generated (of NOTICE a test does).
set -euo pipefail
cd "$(dirname "$0")/../.."

mode=${1:?write or check}
: "${PROTOC_GEN_GO:?version}" "${PROTOC_GEN_GO_GRPC:?version}"

if ! command -v protoc >/dev/null; then
	printf '* GENERATED CODE IS NOT CHECKED: protoc is missing (Debian: protobuf-compiler and libprotobuf-dev)\n' >&2
	case ${CI:-}:$mode in
	1:* | true:* | *:write) exit 1 ;;
	esac
	exit 0
fi

# Plugins are programs that protoc calls, so they are installed, by version,
# into a folder of their own.
tools=$PWD/.cache/tools/$PROTOC_GEN_GO-$PROTOC_GEN_GO_GRPC
if ! [[ -x $tools/protoc-gen-go && -x $tools/protoc-gen-go-grpc ]]; then
	GOBIN=$tools go install "google.golang.org/protobuf/cmd/protoc-gen-go@$PROTOC_GEN_GO"
	GOBIN=$tools go install "google.golang.org/grpc/cmd/protoc-gen-go-grpc@$PROTOC_GEN_GO_GRPC"
fi

out=proto
if [[ $mode == check ]]; then
	out=$(mktemp -d)
	trap 'rm -rf "$out"' EXIT
fi
module=github.com/berth-scheduler/berth/proto
mapfile -t sources < <(cd proto && find berth -name '*.proto' | sort)
PATH=$tools:$PATH protoc -I proto \
	--go_out="$out" --go_opt=module="$module" \
	--go-grpc_out="$out" --go-grpc_opt=module="$module" \
	"${sources[@]}"

if [[ $mode == check ]]; then
	stale=0
	while read -r f; do
		# The comment that names protoc's own version may differ.
		if ! diff -q <(grep -v '^//.*protoc  *v' "$out/$f") <(grep -v '^//.*protoc  *v' "proto/$f" 2>/dev/null) >/dev/null; then
			printf 'proto/%s is not what its .proto gives; run: make generate\n' "$f" >&2
			stale=1
		fi
	done < <(cd "$out" && find . -name '*.pb.go' | sed 's|^\./||')
	while read -r f; do
		if ! [[ -e $out/$f ]]; then
			printf 'proto/%s has no .proto; remove it\n' "$f" >&2
			stale=1
		fi
	done < <(cd proto && find berth -name '*.pb.go')
	"${GO:-go}" run ./cmd/berth-lab reference | diff -q - docs/reference.md >/dev/null || {
		printf 'docs/reference.md is not what the commands say; run: make generate\n' >&2
		stale=1
	}
	exit $stale
fi
reference=$("${GO:-go}" run ./cmd/berth-lab reference)
printf '%s\n' "$reference" >docs/reference.md
notice=$("${GO:-go}" run ./deploy/notice)
printf '%s\n' "$notice" >NOTICE
