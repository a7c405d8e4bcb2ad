"""A transport: frames go through queues of one process, a thread for each agent."""

import queue
import threading

HOMES = {}


class Queued:
    """The lines of one agent."""

    def __init__(self, agent):
        self.agent, self.inbox = agent, queue.Queue()

    def open(self, deliver):
        HOMES[self.agent] = self.inbox
        threading.Thread(target=self.serve, args=(deliver,), daemon=True).start()

    def serve(self, deliver):
        for sender, frame, said in iter(self.inbox.get, None):
            said.put(deliver(sender, frame))

    def send(self, peer, frame):
        said = queue.Queue()
        if peer not in HOMES:
            return None
        HOMES[peer].put((self.agent, frame, said))
        try:
            return said.get(timeout=10)
        except queue.Empty:
            return None

    def close(self):
        HOMES.pop(self.agent, None)
        self.inbox.put(None)
