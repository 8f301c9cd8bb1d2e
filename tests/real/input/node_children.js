// Spawns children while holding 100 MB of data, and checks the data after each; answers arrive in fixed order.
'use strict';
const childProcess = require('child_process');
const cluster = require('cluster');
const crypto = require('crypto');
const http = require('http');
const { Worker, isMainThread, workerData, parentPort } = require('worker_threads');

const sha = (data) => crypto.createHash('sha256').update(data).digest('hex').slice(0, 24);

function serve() {
    http.createServer((_, response) => response.end(sha('answer'))).listen(process.env.SOCKET);
}

function answerMessages() {
    process.on('message', (number) => {
        process.send(number * number);
        if (number === 5) process.disconnect();
    });
}

function get() {
    return new Promise((resolve, reject) => {
        http.get({ socketPath: process.env.SOCKET, path: '/', agent: false }, (response) => {
            let body = '';
            response.on('data', (part) => { body += part; });
            response.on('end', () => resolve(body));
        }).on('error', reject);
    });
}

const ended = (child) => new Promise((resolve) => child.on('close', (code, signal) => resolve([code, signal])));

async function main() {
    const buffers = Array.from({ length: 50 }, (_, i) => Buffer.alloc(1 << 20, `buffer ${i} `));
    const objects = Array.from({ length: 300000 }, (_, i) => ({ id: i, name: `object ${i}`, list: [i % 7] }));
    const state = () => sha(Buffer.concat([...buffers, Buffer.from(JSON.stringify(objects))]));
    console.log('start', state());

    for (let i = 0; i < 12; i++) {
        const result = childProcess.spawnSync('/bin/sh', ['-c', `sha256sum | cut -c1-16; exit ${i}`], { input: buffers[i] });
        console.log('spawnSync', result.status, result.stdout.toString().trim());
        buffers[i].writeUInt32LE(i, i * 4096);
        for (let k = i; k < objects.length; k += 1000) objects[k].name += '!';
    }
    console.log('after spawnSync', state());
    console.log('execFile', childProcess.execFileSync('/bin/echo', ['one', 'two']).toString().trim());

    const cat = childProcess.spawn('/usr/bin/sha256sum');
    let said = '';
    cat.stdout.on('data', (part) => { said += part; });
    buffers.forEach((buffer) => cat.stdin.write(buffer));
    cat.stdin.end();
    console.log('spawn', await ended(cat), said.slice(0, 24));
    const sleeper = childProcess.spawn('/bin/sleep', ['30']);
    sleeper.kill('SIGTERM');
    console.log('kill', await ended(sleeper));
    const missing = childProcess.spawn('/no/such/program');
    console.log('missing', await new Promise((resolve) => missing.on('error', (error) => resolve(error.code))));

    const child = childProcess.fork(__filename, ['messages']);
    const squares = [];
    child.on('message', (square) => squares.push(square));
    for (let i = 1; i <= 5; i++) child.send(i);
    console.log('fork', await ended(child), squares.join(' '));

    const results = await Promise.all([0, 1, 2].map((number) => new Promise((resolve, reject) => {
        const worker = new Worker(__filename, { workerData: number });
        worker.on('message', resolve);
        worker.on('error', reject);
        childProcess.spawnSync('/bin/true');
    })));
    console.log('workers', results.join(' '));

    cluster.setupPrimary({ exec: __filename, args: ['serve'] });
    const servers = [cluster.fork(), cluster.fork()];
    await Promise.all(servers.map((server) => new Promise((resolve) => server.on('listening', resolve))));
    const bodies = new Set();
    for (let i = 0; i < 20; i++) bodies.add(await get());
    console.log('cluster', [...bodies].join(' '));
    await new Promise((resolve) => cluster.disconnect(resolve));

    objects.length = 1000;
    buffers.length = 10;
    if (global.gc) global.gc();
    const again = Array.from({ length: 20 }, (_, i) => Buffer.alloc(1 << 20, i));
    console.log('end', state(), sha(Buffer.concat(again)), childProcess.spawnSync('/bin/true').status);
}

if (!isMainThread) {
    parentPort.postMessage(sha(Buffer.alloc(1 << 22, `worker ${workerData}`)));
} else if (process.argv[2] === 'serve') {
    serve();
} else if (process.argv[2] === 'messages') {
    answerMessages();
} else {
    main().catch((error) => { console.log('FAILED', error); process.exit(1); });
}
