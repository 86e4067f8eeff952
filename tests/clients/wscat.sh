#!/bin/bash
# usage: wscat.sh WSCAT BASE_URL: one request typed into npm's wscat; its printed events hold the whole answer.
set -euo pipefail
model=$(curl --fail --silent --max-time 30 "$2/v1/models" | python3 -c 'import json, sys; print(json.load(sys.stdin)["data"][0]["id"])')
# It ends with its input, so that stays open.
printed=$(timeout 60 "$1" --no-color -c "${2/http/ws}/v1/responses" -w 3 -x \
    "{\"type\":\"response.create\",\"model\":\"$model\",\"input\":\"What is the capital of France?\",\"temperature\":0,\"max_output_tokens\":60}" < <(exec sleep 10 2> /dev/null))
python3 - << END
import json
events = [json.loads(line) for line in r'''$printed'''.splitlines() if line.startswith('{')]
assert [event['sequence_number'] for event in events] == list(range(len(events))), 'an event is missing'
text = ''.join(event['delta'] for event in events if event['type'] == 'response.output_text.delta')
assert events[-1]['type'] == 'response.completed' and 'Paris' in text, (events[-1]['type'], text)
print(len(events), 'events:', text)
END
