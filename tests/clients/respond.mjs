// One text response through npm openai's class ResponsesWS, and the rules its events must keep.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { ResponsesWS } from 'openai/resources/responses/ws';
import { accumulateResponse } from 'openai/lib/responses/ResponseAccumulator';

const kDeadlineMs = 120_000; // for one response; generous, since sanitizers are slow

export function connect(baseUrl) {
    return new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey: 'unused', maxRetries: 0 });
}

// Sends one response.create on a connection of its own and collects its events up to the terminal one.
// Rejects with an Error that has the `event` when the daemon answers with an error event.
// onEvent(event, events, socket) sees each; when it returns true the TCP connection is dropped at once.
export function respond(client, request, onEvent = () => false) {
    return new Promise((resolve, reject) => {
        const socket = new ResponsesWS(client);
        const events = [];
        let isSettled = false;
        const settle = (action, value) => {
            if (isSettled) return;
            isSettled = true;
            clearTimeout(timer);
            action(value);
        };
        const timer = setTimeout(() => {
            settle(reject, new Error(`no terminal event in ${kDeadlineMs} ms, ${events.length} events`));
            socket.close();
        }, kDeadlineMs);
        socket.on('error', (error) => settle(reject, error));
        socket.on('close', (code, reason) =>
            settle(reject, new Error(`closed with ${code} "${reason}" after ${events.length} events`)));
        socket.on('raw', () => settle(reject, new Error('a message that is no JSON text')));
        socket.on('event', (event) => {
            events.push(event);
            if (event.type === 'error') {
                settle(reject, Object.assign(new Error(JSON.stringify(event.error)), { event }));
                socket.close();
            } else if (['response.completed', 'response.incomplete', 'response.failed'].includes(event.type)) {
                settle(resolve, events);
                socket.close();
            } else if (onEvent(event, events, socket)) {
                settle(resolve, events);
                socket.socket.terminate();
            }
        });
        socket.send({ type: 'response.create', ...request });
    });
}

// The text of a response of one message; throws when an event breaks a rule of the protocol.
export function checkTextResponse(events) {
    const types = events.map((event) => event.type);
    const expected = ['response.created', 'response.in_progress', 'response.output_item.added',
        'response.content_part.added'];
    assert.deepEqual(types.slice(0, 4), expected, 'the first four events');
    const numDeltas = types.filter((type) => type === 'response.output_text.delta').length;
    assert.ok(numDeltas > 0, 'no delta');
    const terminal = events.at(-1);
    assert.ok(['response.completed', 'response.incomplete'].includes(terminal.type), terminal.type);
    assert.deepEqual(types.slice(4), [
        ...Array(numDeltas).fill('response.output_text.delta'),
        'response.output_text.done', 'response.content_part.done', 'response.output_item.done',
        terminal.type], 'the events after the first four');

    assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, i) => i),
        'sequence numbers count from 0');
    assert.ok(events.every((event) => !('stream_id' in event)), 'no stream_id on the default lane');

    const id = events[0].response.id;
    assert.match(id, /^resp_/);
    assert.equal(events[0].response.status, 'in_progress');
    const itemId = events[2].item.id;
    for (const event of events) {
        if (event.response) assert.equal(event.response.id, id, `response id in ${event.type}`);
        if ('item_id' in event) assert.equal(event.item_id, itemId, `item id in ${event.type}`);
        if ('output_index' in event) assert.equal(event.output_index, 0);
        if ('content_index' in event) assert.equal(event.content_index, 0);
    }

    const deltas = events.filter((event) => event.type === 'response.output_text.delta');
    const text = deltas.map((event) => event.delta).join('');
    assert.ok(deltas.every((event) => event.delta.isWellFormed?.() ?? true), 'whole characters only');
    const [done, part, item] = events.slice(-4, -1);
    assert.equal(done.text, text, 'output_text.done');
    assert.equal(part.part.text, text, 'content_part.done');
    assert.equal(item.item.content[0].text, text, 'output_item.done');
    const response = terminal.response;
    assert.equal(response.output.length, 1);
    assert.equal(response.output[0].id, itemId);
    assert.equal(response.output[0].content[0].text, text, 'output of the terminal event');
    assert.equal(response.status, terminal.type.slice('response.'.length));
    if (response.status === 'incomplete') {
        assert.equal(response.incomplete_details.reason, 'max_output_tokens');
    }
    const { usage } = response;
    assert.ok(usage.input_tokens > 0 && usage.output_tokens > 0, 'usage counts both directions');
    assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens);

    // The library's own reader must arrive at the same response.
    let snapshot;
    for (const event of events) snapshot = accumulateResponse(event, snapshot);
    assert.equal(snapshot.output[0].content[0].text, text, "the library's accumulated text");
    return text;
}

// The name of the only model that the daemon serves.
export async function servedModel(client) {
    const models = [];
    for await (const model of client.models.list()) models.push(model.id);
    assert.equal(models.length, 1, `one model is served, got ${models}`);
    return models[0];
}
