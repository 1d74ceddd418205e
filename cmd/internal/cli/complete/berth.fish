# Completion of berth for fish: berth completion fish | source

function __berth_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set words[1] (string replace -r '.*/' '' -- $words[1])
    test $words[1] = berth; and set -e words[1]
    set -l lines (berth __complete $words "$word" 2>/dev/null)
    set -l how (string sub -s 2 -- $lines[-1])
    set -e lines[-1]
    string match -qr '^[0-9]+$' -- $how; or return
    if test (count $lines) -eq 0
        test (math "bitand($how, 4)") = 0; and __fish_complete_path "$word"
        return
    end
    string replace -a '`' '' -- $lines
end

complete -c berth -f -a '(__berth_complete)'
for link in @LINKS@
    set -l at (command -s $link)
    if test -n "$at"; and test (realpath $at) = (realpath (command -s berth))
        complete -c $link -f -a '(__berth_complete)'
    end
end
