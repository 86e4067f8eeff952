#!/bin/bash
# Every vocabulary of a folder against every expected id that lies beside it:
#
#   check_vocabularies.sh TOKENIZER_CHECK FOLDER
#
# FOLDER holds ggml-vocab-NAME.gguf with NAME.gguf.inp and .out, and in extra/ strings.json,
# golden-NAME.json and vocab-NAME.gguf.gz. The last line is "N passed, M failed, K left out"; the
# exit status is 0 when nothing failed. Vocabularies that are not there are named and left out.
set -euo pipefail
[[ $# -eq 2 ]] || { echo "usage: $0 TOKENIZER_CHECK FOLDER" >&2; exit 64; }
check=$1 folder=$2
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT

# Test texts whose ids hold for a vocabulary of another name.
declare -A same=([llama-bpe]=llama3.1 [qwen2]=qwen3)

# vocabulary NAME: its file, or "" when there is none.
vocabulary() {
    local name=${same[$1]:-$1} file
    for file in "$folder/ggml-vocab-$1.gguf" "$folder/extra/vocab-$name.gguf" "$unpacked/$name.gguf"; do
        [[ ! -f $file ]] || { echo "$file"; return; }
    done
    if [[ -f $folder/extra/vocab-$name.gguf.gz ]]; then
        gunzip -c "$folder/extra/vocab-$name.gguf.gz" > "$unpacked/$name.gguf"
        echo "$unpacked/$name.gguf"
    fi
}

passed=0 failed=0 left_out=0
# compare NAME TEXTS EXPECTED
compare() {
    local file output
    file=$(vocabulary "$1")
    if [[ -z $file ]]; then
        echo "$3: no vocabulary, left out"
        left_out=$((left_out + 1))
        return
    fi
    output=$("$check" "$file" "$2" "$3" || true)
    echo "$output"
    if [[ $output =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
        passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
    else
        failed=$((failed + 1))
    fi
}

for texts in "$folder"/ggml-vocab-*.gguf.inp; do
    name=$(basename "$texts" .gguf.inp)
    compare "${name#ggml-vocab-}" "$texts" "${texts%.inp}.out"
done
for golden in "$folder"/extra/golden-*.json; do
    name=$(basename "$golden" .json)
    compare "${name#golden-}" "$folder/extra/strings.json" "$golden"
done
echo "$passed passed, $failed failed, $left_out left out"
[[ $failed -eq 0 && $passed -gt 0 ]]
