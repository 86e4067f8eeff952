#!/usr/bin/env python3
"""Answers bound to a form by a real daemon, over HTTP and over WebSocket: usage structured_output.py URL"""

import base64
import json
import os
import socket
import struct
import sys
import urllib.error
import urllib.request

SCHEMA = {'type': 'object',
          'properties': {'city': {'type': 'string', 'maxLength': 30},
                         'size': {'enum': ['small', 'large']},
                         'year': {'type': 'integer', 'minimum': 1, 'maximum': 2100},
                         'tags': {'type': 'array', 'items': {'type': 'string', 'maxLength': 8}, 'maxItems': 2}},
          'required': ['city', 'size', 'year', 'tags'], 'additionalProperties': False}
TIMEOUT_S = 120


def check(condition, words):
    if not condition:
        sys.exit('FAILED: %s' % words)


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {'content-type': 'application/json'})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def check_record(text):
    record = json.loads(text)
    check(list(record) == ['city', 'size', 'year', 'tags'], 'members of %s' % text)
    check(len(record['city']) <= 30 and record['size'] in ('small', 'large'), text)
    check(isinstance(record['year'], int) and 1 <= record['year'] <= 2100, text)
    check(len(record['tags']) <= 2 and all(len(tag) <= 8 for tag in record['tags']), text)


class WebSocket:
    """As much of RFC 6455 as a test needs: text messages, no fragments."""

    def __init__(self, url, path):
        host, port = url.split('//')[1].split(':')
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(('GET %s HTTP/1.1\r\nHost: %s:%s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n'
                             'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n'
                             % (path, host, port, key)).encode())
        head = b''
        while not head.endswith(b'\r\n\r\n'):
            head += self.read(1)
        check(b' 101 ' in head.split(b'\r\n')[0], head)

    def read(self, n):
        data = b''
        while len(data) < n:
            more = self.socket.recv(n - len(data))
            check(more, 'the connection ended')
            data += more
        return data

    def send(self, message):
        data, mask = json.dumps(message).encode(), os.urandom(4)
        length = bytes([0x80 | len(data)]) if len(data) < 126 else bytes([0x80 | 126]) + struct.pack('>H', len(data))
        self.socket.sendall(b'\x81' + length + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def receive(self):
        while True:
            first, length = self.read(2)
            if length == 126:
                length = struct.unpack('>H', self.read(2))[0]
            elif length == 127:
                length = struct.unpack('>Q', self.read(8))[0]
            data = self.read(length)
            if first & 0x0F == 1:
                return json.loads(data)
            check(first & 0x0F in (9, 10), 'frame %02x: %s' % (first, data))


def respond(websocket, request):
    websocket.send(dict(request, type='response.create'))
    while True:
        event = websocket.receive()
        if event['type'] in ('response.completed', 'response.incomplete', 'response.failed', 'error'):
            return event


def check_chat(url, model):
    messages = [{'role': 'user', 'content': 'Describe a town as JSON.'}]
    form = {'type': 'json_schema', 'json_schema': {'name': 'town', 'schema': SCHEMA, 'strict': True}}
    for temperature in (0, 1.5):
        status, body = post(url, '/v1/chat/completions',
                            {'model': model, 'messages': messages, 'response_format': form, 'seed': 7, 'n': 2,
                             'temperature': temperature, 'max_tokens': 400})
        check(status == 200, body)
        for choice in body['choices']:
            check(choice['finish_reason'] == 'stop', choice)
            check_record(choice['message']['content'])
    status, body = post(url, '/v1/chat/completions',
                        {'model': model, 'messages': messages, 'response_format': {'type': 'json_object'},
                         'temperature': 0.7, 'seed': 3, 'max_tokens': 400})
    check(status == 200, body)
    text = body['choices'][0]['message']['content']
    check(text.lstrip().startswith('{'), text)
    if body['choices'][0]['finish_reason'] == 'stop':
        check(isinstance(json.loads(text), dict), text)

    bad = dict(SCHEMA, properties={'city': {'not': {}}})
    status, body = post(url, '/v1/chat/completions',
                        {'model': model, 'messages': messages,
                         'response_format': {'type': 'json_schema', 'json_schema': {'name': 'x', 'schema': bad}}})
    error = body['error']
    check(status == 400 and error['code'] == 'invalid_json_schema', body)
    check(error['param'] == 'response_format.json_schema.schema', body)
    check("'/properties/city', keyword 'not'" in error['message'], body)


def check_calls(url, model):
    tool = {'type': 'function', 'function': {'name': 'describe_town', 'parameters': SCHEMA, 'strict': True}}
    for choice in ('required', {'type': 'function', 'function': {'name': 'describe_town'}}):
        status, body = post(url, '/v1/chat/completions',
                            {'model': model, 'messages': [{'role': 'user', 'content': 'Describe a town.'}],
                             'tools': [tool], 'tool_choice': choice, 'parallel_tool_calls': False,
                             'reasoning_effort': 'none', 'temperature': 0, 'max_tokens': 400})
        check(status == 200, body)
        message = body['choices'][0]['message']
        check(len(message.get('tool_calls') or []) == 1, body)
        check(message['tool_calls'][0]['function']['name'] == 'describe_town', body)
        check_record(message['tool_calls'][0]['function']['arguments'])


def check_responses(url, model):
    websocket = WebSocket(url, '/v1/responses')
    request = {'model': model, 'input': 'Describe a town as JSON.', 'temperature': 1, 'seed': 11,
               'max_output_tokens': 400,
               'text': {'format': {'type': 'json_schema', 'name': 'town', 'schema': SCHEMA, 'strict': True}}}
    event = respond(websocket, request)
    check(event['type'] == 'response.completed', event)
    check_record(event['response']['output'][0]['content'][0]['text'])
    event = respond(websocket, dict(request, max_output_tokens=3))
    check(event['type'] == 'response.incomplete', event)
    event = respond(websocket, dict(request, text={'format': {'type': 'json_object'}}))
    text = event['response']['output'][0]['content'][0]['text']
    check(event['type'] != 'response.completed' or isinstance(json.loads(text), dict), event)
    bad = {'format': {'type': 'json_schema', 'name': 'town', 'schema': {'type': 'string', 'pattern': '(a)\\1'}}}
    event = respond(websocket, dict(request, text=bad))
    check(event['type'] == 'error' and event['error']['param'] == 'text.format.schema', event)
    check("keyword 'pattern'" in event['error']['message'], event)


def main():
    url = sys.argv[1]
    with urllib.request.urlopen(url + '/v1/models', timeout=TIMEOUT_S) as answer:
        model = json.load(answer)['data'][0]['id']
    check_chat(url, model)
    check_calls(url, model)
    check_responses(url, model)
    print('answers and calls have the form that was asked for')


main()
