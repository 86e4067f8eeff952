// usage: node peer_server.mjs TOKENS_PER_SECOND
// What scripts/soak compares the server with: the same events from npm ws, the WebSocket server that most
// gateways written for Node.js use. A token for every stream at each step, one frame each.
import { WebSocketServer } from 'ws';

const periodMs = 1000 / Number(process.argv[2]);
const streams = new Map(); // of a socket: the next sequence number

const server = new WebSocketServer({ host: '127.0.0.1', port: 0, perMessageDeflate: false, backlog: 4096 }, () =>
    console.log(`listening ${server.address().port}`));
server.on('connection', (socket) => {
    socket.on('message', (text) => {
        if (JSON.parse(text).type === 'response.create') streams.set(socket, 0);
    });
    socket.on('close', () => streams.delete(socket));
    socket.on('error', () => streams.delete(socket));
});

let next = performance.now();
const step = () => {
    for (const [socket, number] of streams) {
        streams.set(socket, number + 1);
        socket.send(JSON.stringify({
            type: 'response.output_text.delta', sequence_number: number,
            item_id: 'msg_0123456789abcdef0123456789abcdef', output_index: 0, content_index: 0,
            delta: '123456789.', logprobs: [],
        }));
    }
    next = Math.max(next + periodMs, performance.now());
    setTimeout(step, next - performance.now());
};
step();
process.on('SIGTERM', () => process.exit());
