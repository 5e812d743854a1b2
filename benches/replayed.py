"""Times of work on an NVIDIA GPU, without the time of launching it."""

import statistics

import torch

CALLS = 50


class Timed:
    """Work that is captured once and replayed, so that launching it takes no time."""

    def __init__(self, run):
        self.run = run  # keeps the tensors that the graph reads
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                run()
        torch.cuda.synchronize()
        self.graph, self.times = torch.cuda.CUDAGraph(), []
        with torch.cuda.graph(self.graph, stream=stream):
            for _ in range(CALLS):
                run()

    def round(self):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for warm in (True, False):
            begin.record()
            self.graph.replay()
            end.record()
            end.synchronize()
            if not warm:
                self.times.append(begin.elapsed_time(end) * 1e3 / CALLS)

    def median(self):
        return statistics.median(self.times)
