// One for all tabs of a browser: a run that several of them watch has one stream. HTTP/1.1 allows six connections to a server,
// so of runs that are watched at the same time only some have a stream; the others are read every two seconds.

import { Feed } from "./log-feed.js";

const STREAMS_MAX = 3;
let open = 0;
const turns = {
  take: () => open < STREAMS_MAX && (open += 1) > 0,
  give: () => {
    open -= 1;
  },
};

/** Address of a run's lines -> {feed, ports}. */
const rooms = new Map();

function join(port, { key, where, after, times }) {
  let room = rooms.get(key);
  if (!room) {
    room = { ports: new Set(), feed: null };
    rooms.set(key, room);
    room.feed = new Feed(where, after, times, turns, (news) => {
      if (news.type === "end") rooms.delete(key);
      for (const each of room.ports) each.postMessage({ key, ...news });
    });
  }
  room.ports.add(port);
  port.postMessage({ key, type: "joined", after: room.feed.after, mode: room.feed.mode });
}

function leave(port, key) {
  const room = rooms.get(key);
  if (!room?.ports.delete(port) || room.ports.size) return;
  room.feed.stop();
  rooms.delete(key);
}

self.addEventListener("connect", ({ ports: [port] }) => {
  port.onmessage = ({ data }) => {
    if (data.type === "join") join(port, data);
    else if (data.type === "leave") leave(port, data.key);
  };
  port.addEventListener("close", () => {
    for (const key of [...rooms.keys()]) leave(port, key);
  });
});
