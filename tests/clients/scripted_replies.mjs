// usage: node scripted_replies.mjs NULL_ENGINE
// Reasoning and tool calls through the accumulators of npm openai and ai: what they put together from the
// streamed events is what the daemon says at the end.
import assert from 'node:assert/strict';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, stepCountIs, streamText, tool } from 'ai';
import { accumulateResponse } from 'openai/lib/responses/ResponseAccumulator';
import { z } from 'zod';
import { kModel, withScript } from './null_engine.mjs';
import { connect, respond } from './respond.mjs';

const kParameters = {
    type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false,
};
const kTool = { type: 'function', name: 'get_weather', parameters: kParameters, strict: false };
const kChatTool = { type: 'function', function: { name: 'get_weather', parameters: kParameters } };
const kAnswer = 'It is 18 degrees in Paris and in Oslo.';
const user = (content) => [{ role: 'user', content }];

// The types of the output items, and what the library makes of the events.
async function responsesOver(client, request) {
    const overSocket = await respond(client, { model: kModel, ...request });
    const overHttp = [];
    for await (const event of await client.responses.create({ model: kModel, ...request, stream: true })) overHttp.push(event);
    for (const events of [overSocket, overHttp]) {
        let snapshot;
        for (const event of events) snapshot = accumulateResponse(event, snapshot);
        const { response } = events.at(-1);
        assert.deepEqual(snapshot.output, response.output, 'put together from deltas and as told at the end');
        assert.equal(response.status, 'completed');
        events.forEach((event, i) => assert.equal(event.sequence_number, i));
    }
    const kinds = (events) => events.map((event) => event.type);
    assert.deepEqual(kinds(overHttp), kinds(overSocket), 'the same events on both transports');
    return overSocket.at(-1).response.output;
}

async function checkResponses(client) {
    const text = await responsesOver(client, { input: 'think first' });
    assert.deepEqual(text.map((item) => item.type), ['reasoning', 'message']);
    assert.equal(text[1].content[0].text, 'Four.');

    const calls = await responsesOver(client, { input: 'two cities', tools: [kTool] });
    assert.deepEqual(calls.map((item) => item.type), ['function_call', 'function_call']);
    assert.deepEqual(calls.map((item) => JSON.parse(item.arguments).city), ['Paris', 'Oslo']);
    assert.notEqual(calls[0].call_id, calls[1].call_id);

    const mixed = await responsesOver(client, { input: 'words and a call', tools: [kTool] });
    assert.deepEqual(mixed.map((item) => item.type), ['message', 'function_call']);

    const outputs = calls.map(({ call_id }) => ({ type: 'function_call_output', call_id, output: '18 degrees' }));
    const answer = await responsesOver(client, {
        input: [...user('two cities'), ...calls, ...outputs], tools: [kTool],
    });
    assert.equal(answer[0].content[0].text, kAnswer);
}

async function checkChat(client) {
    const stream = client.chat.completions.stream({ model: kModel, messages: user('two cities'), tools: [kChatTool] });
    const { message, finish_reason } = (await stream.finalChatCompletion()).choices[0];
    assert.equal(finish_reason, 'tool_calls');
    assert.deepEqual(message.tool_calls.map((call) => JSON.parse(call.function.arguments).city), ['Paris', 'Oslo']);

    // The library's own loop: it calls the function and goes on with the result.
    const cities = [];
    const runner = client.chat.completions.runTools({
        model: kModel, messages: user('words and a call'), stream: true,
        tools: [{
            type: 'function',
            function: {
                name: 'get_weather', parameters: kParameters, parse: JSON.parse,
                function: ({ city }) => {
                    cities.push(city);
                    return '18 degrees';
                },
            },
        }],
    });
    assert.equal(await runner.finalContent(), kAnswer);
    assert.deepEqual(cities, ['Paris']);
}

async function checkAiSdk(baseUrl) {
    const provider = createOpenAICompatible({ name: 'assay', baseURL: `${baseUrl}/v1` });
    for (const run of [generateText, streamText]) {
        const cities = [];
        const result = await run({
            model: provider(kModel), messages: user('two cities'), stopWhen: stepCountIs(3), maxRetries: 0,
            tools: {
                get_weather: tool({
                    description: 'Weather for a city', inputSchema: z.object({ city: z.string() }),
                    execute: async ({ city }) => {
                        cities.push(city);
                        return '18 degrees';
                    },
                }),
            },
        });
        if (run === streamText) await result.consumeStream({ onError: (error) => { throw error; } });
        assert.equal(await result.text, kAnswer, run.name);
        assert.deepEqual(cities.sort(), ['Oslo', 'Paris'], run.name);
    }
    const thought = await generateText({ model: provider(kModel), messages: user('think first'), maxRetries: 0 });
    assert.equal(thought.text.trim(), 'Four.');
    assert.equal(thought.reasoningText, 'Two and two is four.');
}

await withScript(process.argv[2], async (baseUrl) => {
    const client = connect(baseUrl);
    await checkResponses(client);
    await checkChat(client);
    await checkAiSdk(baseUrl);
    console.log('reasoning and tool calls arrive as they were written');
});
