#!/bin/bash
# usage: curl.sh BASE_URL: what people type: whole answers, event streams, token ids there and back, refusals.
set -euo pipefail
base=$1
ask() { curl --silent --show-error --max-time 120 -H 'content-type: application/json' "$@"; }
pick() { python3 -c "import json, sys; value = json.load(sys.stdin); print($1)"; }
check() { [[ $2 == *"$3"* ]] || { printf '%s: expected %s, found:\n%s\n' "$1" "$3" "$2" >&2; exit 1; }; }

model=$(ask "$base/v1/models" | pick 'value["data"][0]["id"]')
chat="{\"model\":\"$model\",\"messages\":[{\"role\":\"user\",\"content\":\"What is the capital of France?\"}],\"temperature\":0,\"max_tokens\":60"

check chat "$(ask "$base/v1/chat/completions" -d "$chat}" | pick 'value["choices"][0]["message"]["content"]')" Paris
stream=$(ask -N "$base/v1/chat/completions" -d "$chat,\"stream\":true}")
check "the first event" "$stream" 'data: {'
check "the last event" "$(tail -n 2 <<< "$stream")" 'data: [DONE]'
check "an event stream of responses" "$(ask -N "$base/v1/responses" -d "{\"model\":\"$model\",\"input\":\"hello\",\"max_output_tokens\":4,\"stream\":true}")" \
    'event: response.incomplete'

ids=$(ask "$base/tokenize" -d "{\"model\":\"$model\",\"prompt\":\"One day, a little\"}" | pick 'value["tokens"]')
check detokenize "$(ask "$base/detokenize" -d "{\"model\":\"$model\",\"tokens\":$ids}" | pick 'value["prompt"]')" 'One day, a little'
check "a prompt of ids" "$(ask "$base/v1/completions" -d "{\"model\":\"$model\",\"prompt\":$ids,\"max_tokens\":3,\"temperature\":0}" | pick 'value["usage"]["completion_tokens"]')" 3

check "a broken body" "$(ask -w '%{http_code}' "$base/v1/chat/completions" -d '{"model":')" 400
check "no such path" "$(ask -o /dev/null -w '%{http_code}' "$base/v1/nothing")" 404
check metrics "$(ask "$base/metrics")" assay_ready
echo "ids of the prompt: $ids"
