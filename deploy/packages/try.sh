#!/usr/bin/env bash
# try.sh: installs the packages of bin/packages in a Debian of its own, upgrades them
# from others that call themselves older, removes and purges them, and looks at what is
# there after each step. It needs root and debootstrap, and leaves only the Debian
# itself under .cache, for the next time.
set -euo pipefail
cd "$(dirname "$0")/../.."

root=$PWD/.cache/debian suite=bookworm
[[ $EUID == 0 ]] || { echo 'try.sh: only root can make a Debian to try packages in' >&2; exit 1; }
command -v debootstrap >/dev/null || { echo 'try.sh: debootstrap is missing (Debian: debootstrap)' >&2; exit 1; }
arch=$(dpkg --print-architecture)
mapfile -t debs < <(ls bin/packages/*_"$arch".deb bin/packages/*_all.deb 2>/dev/null)
((${#debs[@]} == 6)) || { echo "try.sh: bin/packages has ${#debs[@]} packages for $arch and not 6: make packages ARCHS=$arch" >&2; exit 1; }

if ! [[ -e $root/.complete ]]; then
	rm -rf "$root"
	debootstrap --variant=minbase --include=systemd,man-db,bash-completion,procps "$suite" "$root" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$root.log" 2>&1 ||
		{ tail -5 "$root.log" >&2; exit 1; }
	rm -f "$root/etc/dpkg/dpkg.cfg.d/"*exclud* # man pages are tried, too
	touch "$root/.complete"
fi

# Each try begins with the same Debian: what it changes lies over it.
work=$(mktemp -d)
trap 'umount -lR "$work/root" 2>/dev/null; umount -l "$work" 2>/dev/null; rmdir "$work"' EXIT
mount -t tmpfs tmpfs "$work"
mkdir "$work"/{over,scratch,root}
mount -t overlay overlay -o "lowerdir=$root,upperdir=$work/over,workdir=$work/scratch" "$work/root"
mount -t proc proc "$work/root/proc"
mount --rbind /dev "$work/root/dev" && mount --make-rslave "$work/root/dev"

# The packages, and the same as an older release.
mkdir "$work/root/new" "$work/root/old" "$work/repack"
cp "${debs[@]}" "$work/root/new/"
for deb in "${debs[@]}"; do
	rm -rf "$work/repack/x"
	dpkg-deb -R "$deb" "$work/repack/x"
	version=$(dpkg-deb -f "$deb" Version)
	sed -i "s/${version//./\\.}/0.0.1/g" "$work/repack/x/DEBIAN/control"
	dpkg-deb -Znone -b "$work/repack/x" "$work/root/old/$(basename "$deb")" >/dev/null
done
rm -rf "$work/repack"
cp deploy/packages/tryinside.sh "$work/root/"
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb chroot "$work/root" unshare --mount bash /tryinside.sh
