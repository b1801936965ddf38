"""Stands in for ssh where rsync runs: `rsync -e "python rsync_pipe.py SOCKET"`. It stands alone.

Its words go to the socket as a line of JSON, then stdin; what comes from there goes to stdout.
"""

import json
import os
import socket
import sys
import threading


def main() -> None:
    """Pass on both ways until both ends have ended."""
    end = socket.socket(socket.AF_UNIX)
    end.connect(sys.argv[1])
    end.sendall(json.dumps(sys.argv[3:]).encode() + b"\n")  # behind the name of the host

    def send() -> None:
        while data := os.read(0, 1 << 16):
            end.sendall(data)
        end.shutdown(socket.SHUT_WR)

    threading.Thread(target=send, daemon=True).start()
    while data := end.recv(1 << 16):
        while data:
            data = data[os.write(1, data) :]


if __name__ == "__main__":
    main()
