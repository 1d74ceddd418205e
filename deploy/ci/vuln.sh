#!/usr/bin/env bash
# vuln.sh PACKAGE...: fails for known vulnerabilities that the code can reach,
# if the database of them (of the URL in VULNDB, else Go's own) can be asked, and
# says so if it cannot. $GOVULNCHECK names the tool with its version.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${GOVULNCHECK:?tool and version}"

unchecked() {
	printf '* KNOWN VULNERABILITIES ARE NOT LOOKED FOR: %s\n' "$1" >&2
	exit 0
}

# The tool is built before the time is taken within which the database answers.
tools=$PWD/.cache/tools/govulncheck-${GOVULNCHECK##*@}
if ! [[ -x $tools/govulncheck ]]; then
	GOBIN=$tools go install "$GOVULNCHECK" || unchecked 'govulncheck cannot be had'
fi
check=("$tools/govulncheck" ${VULNDB:+-db "$VULNDB"})
about=$(timeout 5 "${check[@]}" -version) || unchecked 'the database does not answer'
grep -q '^DB updated' <<<"$about" || unchecked 'the database cannot be reached'

said=$(mktemp)
trap 'rm -f "$said"' EXIT
rc=0
timeout 300 "${check[@]}" "$@" >"$said" 2>&1 || rc=$?
if ((rc == 124)) || { ((rc != 0 && rc != 3)) && grep -q 'fetching vulnerabilities' "$said"; }; then
	unchecked 'the database answers no more'
fi
if ((rc != 0)); then cat "$said"; fi
exit "$rc"
