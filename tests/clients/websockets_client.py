#!/usr/bin/env python3
"""usage: websockets_client.py BASE_URL

The protocol through Debian's python3-websockets: lanes that run at once, an answer that goes on from an earlier
one, and a cancelled one, all on one connection.
"""

import asyncio
import json
import sys
import urllib.request

import websockets

TERMINAL = ('response.completed', 'response.incomplete', 'response.failed', 'response.cancelled')


async def read_until(socket, done):
    events = []
    while not done(events):
        events.append(json.loads(await asyncio.wait_for(socket.recv(), 120)))
        assert events[-1]['type'] != 'error', events[-1]
    return events


def text_of(events):
    return ''.join(event['delta'] for event in events if event['type'] == 'response.output_text.delta')


def ended(events, count=1):
    return sum(event['type'] in TERMINAL for event in events) >= count


async def main(base_url):
    with urllib.request.urlopen(base_url + '/v1/models', timeout=30) as answer:
        model = json.load(answer)['data'][0]['id']
    url = base_url.replace('http://', 'ws://') + '/v1/responses'
    async with websockets.connect(url, max_size=None) as socket:
        async def create(text, **fields):
            await socket.send(json.dumps({'type': 'response.create', 'model': model, 'input': text,
                                          'temperature': 0, 'max_output_tokens': 60, **fields}))

        await create('What is the capital of France?')
        first = await read_until(socket, ended)
        assert 'Paris' in text_of(first), text_of(first)

        # Two lanes at once: each has its own sequence, and gives what it gives alone.
        for lane in ('a', 'b'):
            await create('What is the capital of France?', stream_id=lane)
        both = await read_until(socket, lambda events: ended(events, 2))
        for lane in ('a', 'b'):
            own = [event for event in both if event.get('stream_id') == lane]
            assert text_of(own) == text_of(first), (lane, text_of(own))
            assert [event['sequence_number'] for event in own] == list(range(len(own)))

        # The conversation goes on from a response, whose tokens come from the cache (in whole blocks).
        await create('Tell me a story about a fox.')
        story = await read_until(socket, ended)
        await create('What is the capital of Italy?', previous_response_id=story[-1]['response']['id'])
        second = await read_until(socket, ended)
        usage = second[-1]['response']['usage']
        assert usage['input_tokens'] > story[-1]['response']['usage']['input_tokens'] + 60, usage
        assert usage['input_tokens_details']['cached_tokens'] > 0, usage

        # A cancelled response ends, and the connection goes on.
        await create('Tell me a story about a fox.', max_output_tokens=400)
        begun = await read_until(socket, lambda events: len(text_of(events)) > 0)
        await socket.send(json.dumps({'type': 'response.cancel', 'response_id': begun[0]['response']['id']}))
        cancelled = await read_until(socket, ended)
        assert cancelled[-1]['response']['status'] == 'cancelled', cancelled[-1]
        await create('What is the capital of France?')
        assert text_of(await read_until(socket, ended)) == text_of(first)

        await asyncio.wait_for(await socket.ping(), 30)
    print(repr(text_of(first)), repr(text_of(second)))


asyncio.run(asyncio.wait_for(main(sys.argv[1]), 280))
