#compdef berth
# Completion of berth for zsh: source <(berth completion zsh), or as _berth in a folder of $fpath

_berth() {
	local how line
	local -a args lines shown
	args=("${(@)words[2,CURRENT]}")
	[[ ${words[1]:t} == berth ]] || args=("${words[1]:t}" "${args[@]}")
	lines=("${(@f)$(berth __complete "${args[@]}" 2>/dev/null)}")
	how=${${lines[-1]}#:}
	[[ $how == <-> ]] || return 1
	(( how & 1 )) && return 1
	for line in "${(@)lines[1,-2]}"; do
		[[ -n $line ]] && shown+=("${${${line//:/\\:}//\`/}/$'\t'/:}")
	done
	if (( ${#shown} == 0 )); then
		(( how & 4 )) || _files
		return
	fi
	if (( how & 2 )); then
		_describe -V 'berth' shown -S ''
	else
		_describe -V 'berth' shown
	fi
}

compdef _berth berth
for _berth_link in @LINKS@; do
	[[ ${commands[$_berth_link]:-/} -ef ${commands[berth]:-} ]] && compdef _berth $_berth_link
done
unset _berth_link
[[ ${funcstack[1]} == _berth ]] && _berth
