
# Without the package bash-completion, these functions take the place of its own. That package
# defines _init_completion, which wins even if it is loaded later.
if ! declare -F _get_comp_words_by_ref >/dev/null; then
    # The words up to the cursor. Bash splits them at = and :, too.
    __sandbox_init_completion()
    {
        local line=${COMP_LINE:0:COMP_POINT} i part gap joined=no
        words=() cword=-1
        for ((i = 0; i <= COMP_CWORD; i++)); do
            part=${COMP_WORDS[i]}
            gap=${line%%[![:space:]]*}
            line=${line#"$gap"}
            if ((i == COMP_CWORD)); then
                part=$line # the cursor may be inside of the word
            fi
            line=${line#"$part"}
            if [[ -n $gap || $i -eq 0 ]] || [[ ! $part =~ ^[=:]+$ && $joined == no ]]; then
                words[++cword]=$part
            else
                words[cword]+=$part
            fi
            if [[ $part =~ ^[=:]+$ ]]; then joined=yes; else joined=no; fi
        done
        cur=${words[cword]}
        prev=
        if ((cword > 0)); then prev=${words[cword-1]}; fi
    }
fi
if ! declare -F _filedir >/dev/null; then
    # Files, or with -d only directories.
    _filedir()
    {
        local path kind=-f
        if [[ ${1-} == -d ]]; then kind=-d; fi
        if [[ $(type -t compopt) == builtin ]]; then compopt -o filenames 2>/dev/null; fi
        while IFS= read -r path; do COMPREPLY+=("$path"); done < <(compgen $kind -- "$cur")
    }
fi
