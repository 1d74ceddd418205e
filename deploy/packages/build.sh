#!/usr/bin/env bash
# build.sh [amd64|arm64]...: builds the packages, deb and rpm, into bin/packages. The
# version is that of the tree (cmd/internal/build): a commit with that tag is the
# release, any other comes before it, in the order of commits. BERTH_PACKAGE_VERSION
# says otherwise.
set -euo pipefail
cd "$(dirname "$0")/../.."
umask 022

: "${NFPM:?module@version}" "${CYCLONEDX:?module@version}" "${LINKS:?names of the look-alikes}"
go=${GO:-go} out=bin/packages
archs=("$@")
((${#archs[@]})) || archs=(amd64 arm64)
host=$("$go" env GOHOSTARCH)

release=$(sed -n 's/^const Version = "v\(.*\)"$/\1/p' cmd/internal/build/build.go)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
VERSION=${BERTH_PACKAGE_VERSION:-}
if [[ -z $VERSION ]]; then
	VERSION=$release
	if [[ $(git tag --points-at HEAD) != *"v$release"* || -n $(git status --porcelain) ]]; then
		VERSION+="~$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).$(git rev-parse --short=8 HEAD)"
		[[ -z $(git status --porcelain) ]] || VERSION+=.changed
	fi
fi
export VERSION SOURCE_DATE_EPOCH

# compiler prints the C compiler for an architecture: berthd reads GPUs by way of C.
compiler() {
	local cc=gcc
	case $1 in
	"$host") ;;
	arm64) cc=aarch64-linux-gnu-gcc ;;
	amd64) cc=x86_64-linux-gnu-gcc ;;
	*) printf 'no packages are built for %s: amd64 or arm64\n' "$1" >&2 && return 1 ;;
	esac
	command -v "$cc" && return
	printf '%s is missing, without which berthd for %s cannot be built (Debian: gcc-aarch64-linux-gnu and libc6-dev-arm64-cross, or their like)\n' "$cc" "$1" >&2
	return 1
}

# programs builds those of an architecture, and says what they are made of.
programs() {
	local arch=$1 cc
	cc=$(compiler "$arch")
	make --no-print-directory build GOARCH="$arch" CC="$cc" CGO_ENABLED=1 BIN="$out/$arch/bin/"
	mkdir -p "$out/$arch/sbom"
	for p in "$out/$arch"/bin/*; do
		"$go" run "$CYCLONEDX" bin -json -noserial -output "$out/$arch/sbom/${p##*/}.cdx.json" "$p"
		sed -i "s/\"timestamp\": \"[^\"]*\"/\"timestamp\": \"$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)\"/" "$out/$arch/sbom/${p##*/}.cdx.json"
	done
}

# pages writes what is the same for all: manual pages, completion, links.
pages() {
	local here=$out/$host/bin to=$1
	rm -rf "$to/man" "$to/slurm-man" "$to/completions" "$to/links"
	mkdir -p "$to/completions" "$to/links"
	"$here/berth" reference --man "$to/man" --slurm-man "$to/slurm-man"
	gzip -9n "$to"/man/* "$to"/slurm-man/*
	for shell in bash zsh fish; do
		"$here/berth" completion "$shell" >"$to/completions/berth.$shell"
	done
	for name in $LINKS; do
		ln -sfn ../../../bin/berth "$to/links/$name"
	done
	ln -sfn ../../../bin/berth-sbatch "$to/links/sbatch"
}

# The program that writes the pages has to run here.
printf '%s\n' "$host" "${archs[@]}" | sort -u | while read -r arch; do programs "$arch"; done
rm -f "$out"/*.deb "$out"/*.rpm
for arch in "${archs[@]}"; do
	pages "$out/$arch"
	for config in deploy/packages/*.yaml; do
		for format in deb rpm; do
			ARCH=$arch STAGE=$out/$arch "$go" run "$NFPM" package --config "$config" --packager "$format" --target "$out/" >/dev/null
		done
	done
done
ls -l "$out"/*.deb "$out"/*.rpm | awk '{ printf "%9d KiB  %s\n", $5 / 1024, $NF }'
