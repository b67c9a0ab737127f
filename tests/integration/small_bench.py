"""A bench for tests: it prints figures, breaks a promise, fails or hangs, by its arguments."""

import json
import signal
import sys

if __name__ == "__main__":
    wish = sys.argv[-1]
    if wish == "hang":
        signal.pause()
    if wish == "fail":
        sys.exit("first line\nsecond line")
    json.dump({"builds": 7, "refused_wrongly": int(wish == "law")}, sys.stdout)
    if wish == "promise":
        sys.exit("broken: 1 lost")
