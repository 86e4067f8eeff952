// usage: node browser.mjs CHROMIUM BASE_URL
// The native WebSocket of a page in Chromium: a page of the daemon's own origin gets its answer, one of another
// origin does not get in.
import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';
import { checkTextResponse, connect, servedModel } from './respond.mjs';

const [executablePath, baseUrl] = process.argv.slice(2);
const model = await servedModel(connect(baseUrl));
const url = `${baseUrl.replace('http', 'ws')}/v1/responses`;

// Runs in the page: the events of one response, or how the connection closed.
const ask = ({ url, request }) => new Promise((resolve) => {
    const socket = new WebSocket(url);
    const events = [];
    socket.onopen = () => socket.send(JSON.stringify(request));
    socket.onclose = ({ code }) => resolve({ events, code });
    socket.onmessage = ({ data }) => {
        events.push(JSON.parse(data));
        if (/^(response\.(completed|incomplete|failed)|error)$/.test(events.at(-1).type)) socket.close();
    };
});

// In a container root has no sandbox of Chromium's own, and /dev/shm is small.
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
try {
    const page = await browser.newPage();
    const request = {
        type: 'response.create', model, input: 'What is the capital of France?', temperature: 0,
        max_output_tokens: 60,
    };
    await page.goto(`${baseUrl}/healthz`);
    const { events } = await page.evaluate(ask, { url, request });
    const text = checkTextResponse(events);
    assert.match(text, /Paris/);

    await page.goto('data:text/html,<title>elsewhere</title>');
    const stranger = await page.evaluate(ask, { url, request });
    assert.deepEqual(stranger, { events: [], code: 1006 }, 'a page of another origin');
    console.log(`${await browser.version()}: "${text}"`);
} finally {
    await browser.close();
}
