#!/usr/bin/env bash
# gosec.sh PACKAGE...: looks for what is unsafe in the code that ships. $GOSEC
# names the tool with its version. What it finds is mended, or marked where it
# stands by "#nosec RULE -- reason"; for a rule that is left out, the reason is here.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${GOSEC:?tool and version}"

# rule | why it says nothing here
out=(
	"G115|conversions of integers: of some 430 each is of a length, an id or a count that was bounded where it came in (specs, configuration, decoders)"
	"G204|programs with arguments from elsewhere: to start those of users and of the site is the purpose, and no shell reads their words"
	"G304|files by a path in a variable: each program reads what its own user names; what root opens for a user is opened as that user (agent/asuser) or below a descriptor"
	"G702|G204 again, found by following values"
	"G703|G304 again, found by following values"
)
rules=$(printf '%s\n' "${out[@]}" | cut -d'|' -f1 | paste -sd,)

# Models and simulations draw the same for the same seed, as they should.
seeds='^(.*/)?(model|scheduler)/.*:G404'

# Closing what was read or is given up, its deadlines, and hashes: no error
# means anything there. Modes of directories and files that all may read are
# meant, ones that all may write are not.
conf=$(mktemp) said=$(mktemp)
trap 'rm -f "$conf" "$said"' EXIT
cat >"$conf" <<'JSON'
{
	"G104": {
		"*os.File": ["Close"],
		"net.Conn": ["Close", "SetDeadline", "SetReadDeadline", "SetWriteDeadline"],
		"*net.UnixConn": ["Close"],
		"net.Listener": ["Close"],
		"google.golang.org/grpc.ClientConn": ["Close"],
		"hash.Hash32": ["Write"],
		"hash.Hash64": ["Write"]
	},
	"G301": "0755",
	"G302": "0755",
	"G306": "0755"
}
JSON

# Files of tests are not looked at, nor are packages that only tests use. With
# -quiet it would pass over code that it cannot read.
if ! GOSECGOVERSION=go$(go list -m -f '{{.GoVersion}}') go run "$GOSEC" -log /dev/null -fmt text -color=false \
	-exclude-generated -exclude-dir 'test$' -exclude-dir '^e2e' \
	-nosec-require-rules -nosec-require-justification \
	-conf "$conf" -exclude "$rules" -exclude-rules "$seeds" "$@" >"$said"; then
	cat "$said"
	exit 1
fi
