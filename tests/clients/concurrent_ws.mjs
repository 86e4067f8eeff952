// usage: node concurrent_ws.mjs BASE_URL NUM_STREAMS [--drop-half]
// Many streams at once, each compared with the same request run alone. With --drop-half every second
// client drops its connection in the middle; the others must not notice, and its KV blocks come back.
import assert from 'node:assert/strict';
import { checkTextResponse, connect, respond, servedModel } from './respond.mjs';

const [baseUrl, count, ...flags] = process.argv.slice(2);
const numStreams = Number(count);
assert.ok(Number.isInteger(numStreams) && numStreams > 0, 'NUM_STREAMS');
const isDropping = flags.includes('--drop-half');

const client = connect(baseUrl);
const model = await servedModel(client);

const kQuestions = [
    'Tell me a story about a fox.', 'What is a KV cache?', 'What is the capital of Italy?',
    'Tell me a story about a dragon.', 'What is 6 times 7?', 'My name is Clara.',
    'Tell me a story about a girl.', 'What is the opposite of cold?',
];
// Different lengths, so that sequences join and leave the batch at different steps.
const requests = Array.from({ length: numStreams }, (_, i) => ({
    model, input: kQuestions[i % kQuestions.length], temperature: 0, max_output_tokens: 16 + (i % 5) * 8,
}));

const alone = new Map(); // by the request, since some are equal
for (const request of requests) {
    const key = JSON.stringify(request);
    if (!alone.has(key)) alone.set(key, checkTextResponse(await respond(client, request)));
}

const isDropped = (i) => isDropping && i % 2 === 1;
let numRunning = 0;
let mostRunning = 0;
const results = await Promise.all(requests.map(async (request, i) => {
    let numDeltas = 0;
    const events = await respond(client, request, (event) => {
        if (event.type === 'response.created') mostRunning = Math.max(mostRunning, ++numRunning);
        if (event.type === 'response.output_text.delta') ++numDeltas;
        return isDropped(i) && numDeltas === 3;
    });
    --numRunning;
    return events;
}));
results.forEach((events, i) => {
    // An answer of fewer than three deltas ended before its client could leave.
    if (isDropped(i) && events.at(-1).type === 'response.output_text.delta') return;
    assert.equal(checkTextResponse(events), alone.get(JSON.stringify(requests[i])),
        `stream ${i} differs from the same request alone`);
});
assert.ok(numStreams === 1 || mostRunning > 1, 'the streams did not overlap');

// Whoever left, left nothing behind.
const usedBlocks = async () => {
    const text = await (await fetch(`${baseUrl}/metrics`)).text();
    const lines = text.split('\n').filter((line) => /^assay_kv_blocks\{.*state="used"/.test(line));
    assert.ok(lines.length > 0, 'assay_kv_blocks is in /metrics');
    return lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
};
const deadline = Date.now() + 10_000;
while ((await usedBlocks()) !== 0) {
    assert.ok(Date.now() < deadline, `${await usedBlocks()} KV blocks are still held`);
    await new Promise((resolve) => setTimeout(resolve, 20));
}

console.log(`${numStreams} streams, at most ${mostRunning} at once, ${alone.size} distinct requests`);
