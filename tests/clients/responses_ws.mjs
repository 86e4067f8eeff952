// usage: node responses_ws.mjs BASE_URL
// One streamed answer through an unmodified client, checked event by event.
import assert from 'node:assert/strict';
import { checkTextResponse, connect, respond, servedModel } from './respond.mjs';

const client = connect(process.argv[2]);
const model = await servedModel(client);

const events = await respond(client, {
    model, input: 'What is the capital of France?', temperature: 0, max_output_tokens: 200,
});
const text = checkTextResponse(events);
assert.equal(events.at(-1).type, 'response.completed', 'the model ends this answer itself');
assert.match(text, /Paris/, 'the answer');
assert.equal(events.at(-1).response.model, model);

// A limit on the length ends the response as incomplete, with exactly that many tokens.
const cut = await respond(client, {
    model, input: 'Tell me a story about a fox.', temperature: 0, max_output_tokens: 5,
});
checkTextResponse(cut);
assert.equal(cut.at(-1).type, 'response.incomplete');
assert.equal(cut.at(-1).response.usage.output_tokens, 5);

// A refused request is one error event, and the client sees its code.
await assert.rejects(respond(client, { model: 'no-such-model', input: 'hello' }), (error) => {
    assert.equal(error.event?.error.code, 'model_not_found', String(error));
    assert.equal(error.event.status, 404);
    return true;
});

console.log(`${events.length} events; the answer: ${text}`);
