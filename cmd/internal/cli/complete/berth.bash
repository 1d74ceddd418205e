# Completion of berth for bash: source <(berth completion bash)

_berth_complete() {
	local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT} how reply word
	local -a words
	read -ra words <<<"$line"
	[[ $line == *[[:space:]] ]] && words+=('')
	word=${words[-1]}
	[[ ${words[0]##*/} == berth ]] && words=("${words[@]:1}") || words[0]=${words[0]##*/}
	reply=$(berth __complete "${words[@]}" 2>/dev/null) || return
	how=${reply##*:}
	IFS=$'\n'
	words=()
	for reply in ${reply%:*}; do
		reply=${reply%%$'\t'*}
		[[ $reply == "$word"* ]] && words+=("$reply")
	done
	((how & 1)) && return
	if ((${#words[@]} == 0)); then
		((how & 4)) || compopt -o default
		return
	fi
	# What readline takes for a word begins after the last = or : of ours.
	[[ $word == *[=:]* && $COMP_WORDBREAKS == *=* ]] && words=("${words[@]#"${word%"${word##*[=:]}"}"}")
	COMPREPLY=("${words[@]}")
	[[ ${#words[@]} -eq 1 && ${words[0]} == *= ]] || ((how & 2)) && compopt -o nospace
	return 0
}

complete -F _berth_complete berth
for _berth_link in @LINKS@; do
	[[ $(type -P "$_berth_link") -ef $(type -P berth) ]] && complete -F _berth_complete "$_berth_link"
done
unset _berth_link
