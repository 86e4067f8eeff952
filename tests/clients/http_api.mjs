// usage: node http_api.mjs BASE_URL
// Chat completions, completions and responses over HTTP through npm openai: whole and streamed answers say the same.
import assert from 'node:assert/strict';
import { connect, servedModel } from './respond.mjs';

const client = connect(process.argv[2]);
const model = await servedModel(client);
const messages = [{ role: 'user', content: 'What is the capital of France?' }];
const chat = { model, messages, temperature: 0, max_completion_tokens: 60 };

// ---- chat completions ----
const whole = await client.chat.completions.create({ ...chat, logprobs: true, top_logprobs: 2 });
const [choice] = whole.choices;
assert.match(choice.message.content, /Paris/);
assert.equal(choice.finish_reason, 'stop');
assert.equal(choice.logprobs.content.map((token) => token.token).join('').trim(), choice.message.content.trim());
assert.ok(choice.logprobs.content.every((token) => token.logprob <= 0 && token.top_logprobs.length === 2));
assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);

let text = '';
let last;
let usage;
for await (const chunk of await client.chat.completions.create({
    ...chat, stream: true, stream_options: { include_usage: true },
})) {
    text += chunk.choices[0]?.delta.content ?? '';
    last = chunk.choices[0]?.finish_reason ?? last;
    usage = chunk.usage ?? usage;
}
assert.equal(text, choice.message.content, 'streamed chat');
assert.equal(last, 'stop');
assert.deepEqual(usage, whole.usage);

const runner = client.chat.completions.stream(chat); // the library's own accumulator
assert.equal((await runner.finalChatCompletion()).choices[0].message.content, text);

const several = await client.chat.completions.create({ ...chat, n: 2 });
assert.deepEqual(several.choices.map((one) => one.index), [0, 1]);
assert.ok(several.choices.every((one) => one.message.content === text), 'greedy choices are equal');

const seeded = { ...chat, temperature: 1, seed: 7, max_completion_tokens: 20 };
assert.equal((await client.chat.completions.create(seeded)).choices[0].message.content,
    (await client.chat.completions.create(seeded)).choices[0].message.content, 'equal seeds');

// ---- completions ----
const prompt = 'One day, a little';
const completion = { model, prompt, temperature: 0, max_tokens: 12 };
const plain = await client.completions.create({ ...completion, echo: true, logprobs: 1 });
assert.ok(plain.choices[0].text.startsWith(prompt), 'echo');
assert.equal(plain.choices[0].finish_reason, 'length');
const { tokens, token_logprobs: logprobs, text_offset: offsets } = plain.choices[0].logprobs;
assert.equal(tokens.join(''), plain.choices[0].text);
assert.equal(logprobs[0], null, 'nothing precedes the first token');
assert.ok(logprobs.slice(1).every((value) => value <= 0));
assert.ok(offsets.every((offset, i) => i === 0 || offset >= offsets[i - 1]));

let streamed = '';
for await (const chunk of await client.completions.create({ ...completion, stream: true })) {
    streamed += chunk.choices[0]?.text ?? '';
}
assert.equal(prompt + streamed, plain.choices[0].text, 'streamed completion');

// ---- responses ----
const request = { model, input: messages[0].content, temperature: 0, max_output_tokens: 60 };
const response = await client.responses.create(request);
assert.equal(response.output_text, text);
const events = client.responses.stream(request);
assert.equal((await events.finalResponse()).output_text, text, 'streamed response');

// ---- refusals arrive as the library's own errors ----
await assert.rejects(client.chat.completions.create({ ...chat, temperature: 9 }), (error) => {
    assert.equal(error.status, 400);
    assert.equal(error.param, 'temperature');
    return true;
});
await assert.rejects(client.completions.create({ ...completion, model: 'no-such-model' }), { status: 404 });

console.log(`"${text}", ${usage.total_tokens} tokens`);
