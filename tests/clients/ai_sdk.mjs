// usage: node ai_sdk.mjs BASE_URL
// Vercel's `ai` with its provider for OpenAI-compatible servers: whole and streamed text.
import assert from 'node:assert/strict';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, streamText } from 'ai';
import { connect, servedModel } from './respond.mjs';

const baseUrl = process.argv[2];
const provider = createOpenAICompatible({ name: 'assay', baseURL: `${baseUrl}/v1`, includeUsage: true });
const request = {
    model: provider(await servedModel(connect(baseUrl))),
    messages: [{ role: 'user', content: 'What is the capital of Italy?' }],
    temperature: 0, maxOutputTokens: 60, maxRetries: 0,
};

const whole = await generateText(request);
assert.match(whole.text, /Rome/);
assert.equal(whole.finishReason, 'stop');

const stream = streamText({ ...request, onError: ({ error }) => { throw error; } });
let text = '';
for await (const delta of stream.textStream) text += delta;
assert.equal(text, whole.text, 'streamed text');
assert.equal(await stream.finishReason, 'stop');
const usage = await stream.usage;
assert.deepEqual([usage.inputTokens, usage.outputTokens], [whole.usage.inputTokens, whole.usage.outputTokens]);
assert.ok(usage.outputTokens > 0);

const cut = await generateText({ ...request, maxOutputTokens: 3 });
assert.equal(cut.finishReason, 'length');
assert.equal(cut.usage.outputTokens, 3);

console.log(`"${text}", ${usage.totalTokens} tokens`);
