// The server with replies by heart (tests/system/null_engine), for what a small model does not do at will.
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const kStartMs = 30_000;
export const kModel = 'null';

// Runs `use(baseUrl)` while null_engine plays scripted.json, then ends it.
export async function withScript(program, use) {
    const script = fileURLToPath(new URL('scripted.json', import.meta.url));
    const server = spawn(program, ['--tokens-per-second', '0', '--script', script],
        { stdio: ['ignore', 'pipe', 'inherit'] });
    try {
        const port = await new Promise((resolve, reject) => {
            const timer = setTimeout(() => reject(new Error('null_engine did not start')), kStartMs);
            server.on('exit', (status) => reject(new Error(`null_engine ended with status ${status}`)));
            server.stdout.on('data', (text) => {
                const found = /listening (\d+)/.exec(text);
                if (!found) return;
                clearTimeout(timer);
                resolve(found[1]);
            });
        });
        await use(`http://127.0.0.1:${port}`);
    } finally {
        server.removeAllListeners('exit');
        server.kill();
    }
}
