// usage: node agents.mjs NULL_ENGINE
// npm @openai/agents over the Responses WebSocket: tools are called, their results sent, the answer read.
import assert from 'node:assert/strict';
import { Agent, OpenAIProvider, Runner, tool } from '@openai/agents';
import { z } from 'zod';
import { kModel, withScript } from './null_engine.mjs';

await withScript(process.argv[2], async (baseUrl) => {
    const cities = [];
    const getWeather = tool({
        name: 'get_weather',
        description: 'Weather for a city',
        parameters: z.object({ city: z.string() }),
        execute: ({ city }) => {
            cities.push(city);
            return '18 degrees';
        },
    });
    const provider = new OpenAIProvider({
        apiKey: 'unused', baseURL: `${baseUrl}/v1`, useResponses: true, useResponsesWebSocket: true,
    });
    const runner = new Runner({ modelProvider: provider, tracingDisabled: true });
    const agent = new Agent({ name: 'Weather', instructions: 'Answer shortly.', model: kModel, tools: [getWeather] });

    const whole = await runner.run(agent, 'The weather in two cities, please.');
    assert.equal(whole.finalOutput, 'It is 18 degrees in Paris and in Oslo.');
    assert.deepEqual(cities.splice(0), ['Paris', 'Oslo'], 'calls in parallel');

    const streamed = await runner.run(agent, 'Some words and a call.', { stream: true });
    let text = '';
    for await (const chunk of streamed.toTextStream()) text += chunk;
    await streamed.completed;
    assert.equal(streamed.finalOutput, 'It is 18 degrees in Paris and in Oslo.');
    assert.match(text, /^Let me look\.\s*It is 18 degrees in Paris and in Oslo\.$/);
    assert.deepEqual(cities, ['Paris']);
    await provider.close();
    console.log(`"${whole.finalOutput}" after ${whole.rawResponses.length} responses`);
});
