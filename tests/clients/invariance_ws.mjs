// usage: node invariance_ws.mjs BASE_URL NUM_STREAMS [SEED]
// Greedy streams that arrive at random, some of which are cancelled or dropped in the middle: whatever each
// received must be how its solo run begins, token for token, bit for bit of the log-probabilities. Prints JSON.
import assert from 'node:assert/strict';
import { connect, respond, servedModel } from './respond.mjs';

const [baseUrl, count, given] = process.argv.slice(2);
const numStreams = Number(count);
assert.ok(Number.isInteger(numStreams) && numStreams > 0, 'NUM_STREAMS');
const seed = Number(given ?? Date.now() % 2 ** 31);
let state = seed;
const random = () => { // a linear congruential generator: the seed replays the run
    state = (state * 1103515245 + 12345) % 2 ** 31;
    return state / 2 ** 31;
};

const client = connect(baseUrl);
const model = await servedModel(client);
const kQuestions = ['Tell me a story about a fox.', 'What is a KV cache?', 'Tell me a story about a dragon.',
    'Tell me a story about a girl.', 'What is the capital of Italy?', 'My name is Clara.'];
const streams = Array.from({ length: numStreams }, (_, i) => ({
    request: {
        model, input: `${kQuestions[i % kQuestions.length]} ${i}`, temperature: 0,
        max_output_tokens: 24 + Math.floor(random() * 72), ignore_eos: true, include: ['message.output_text.logprobs'],
    },
    delayMs: random() * 200,
    leaveAfter: random() < 0.25 ? 1 + Math.floor(random() * 12) : Infinity,
    isCancelling: random() < 0.5, // otherwise the connection is dropped
}));

const tokensOf = (events) => events.filter((event) => event.type === 'response.output_text.delta')
    .flatMap((event) => event.logprobs.map(({ token, logprob }) => `${token} ${logprob}`));

let numLeft = 0;
const together = await Promise.all(streams.map(async ({ request, delayMs, leaveAfter, isCancelling }) => {
    await new Promise((resolve) => setTimeout(resolve, delayMs));
    let numDeltas = 0;
    return tokensOf(await respond(client, request, (event, _, socket) => {
        if (event.type !== 'response.output_text.delta' || ++numDeltas !== leaveAfter) return false;
        ++numLeft;
        if (isCancelling) socket.send({ type: 'response.cancel' });
        return !isCancelling;
    }));
}));

let different = 0;
let tokens = 0;
for (const [i, { request }] of streams.entries()) {
    const alone = tokensOf(await respond(client, request));
    const received = together[i];
    tokens += received.length;
    const isWhole = streams[i].leaveAfter === Infinity || received.length === alone.length;
    const expected = isWhole ? alone : alone.slice(0, received.length);
    if (JSON.stringify(received) === JSON.stringify(expected) && received.length > 0) continue;
    ++different;
    const at = received.findIndex((token, k) => token !== expected[k]);
    console.error(`stream ${i}, seed ${seed}: differs at token ${at} of ${received.length}: ` +
        `${received[at]} with others, ${expected[at]} alone`);
}
console.log(JSON.stringify({ compared: numStreams, different, tokens, left: numLeft, seed }));
