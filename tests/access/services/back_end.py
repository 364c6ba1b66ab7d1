"""A service that knows users, in the ways of other brokers' back ends: on the server that Python has.

usage: back_end.py LOG [CERTIFICATE KEY]

Prints its port. Writes each question into LOG, as one line of JSON. The path of the URL says how the service behaves.
"""

import json
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PASSWORDS = {"frog": "croak", "tödö & co": "hop=1&x", "short": "life"}
LOCK = threading.Lock()


class BackEnd(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.decide({name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if self.headers.get("Content-Type") == "application/json":
            self.decide(json.loads(body))
        else:
            self.decide({name: values[0] for name, values in parse_qs(body, strict_parsing=True).items()})

    def decide(self, question):
        path = urlsplit(self.path).path
        note = {"path": path, "method": self.command, "question": question}
        note["authorization"] = self.headers.get("Authorization")
        with LOCK, open(sys.argv[1], "a", encoding="utf-8") as log:
            log.write(json.dumps(note) + "\n")
        user = question.get("username")
        is_right = PASSWORDS.get(user, None) == question.get("password")
        if path == "/emqx":
            if user not in PASSWORDS:
                self.say(200, '{"result": "ignore"}')
            elif user == "short" and is_right:
                self.say(200, json.dumps({"result": "allow", "expire_at": int(time.time()) + 2}))
            else:
                self.say(200, '{"result": "allow", "is_superuser": false}' if is_right else '{"result": "deny"}')
        elif path == "/go-auth/json":
            self.say(200, json.dumps({"Ok": is_right, "Error": "" if is_right else "no such user"}))
        elif path == "/go-auth/status":
            self.say(200 if is_right else 403, "")
        elif path == "/go-auth/text":
            self.say(200, "ok" if is_right else "wrong")
        elif path == "/hang":
            time.sleep(600)
        elif path == "/slow":
            # A byte at a time, without an end.
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            while True:
                self.wfile.write(b" ")
                time.sleep(0.1)
        elif path == "/huge":
            self.say(200, '{"result": "allow"' + " " * 100_000 + "}")
        elif path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "/emqx")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path == "/lie":
            self.say(200, "<html>It works!</html>")
        elif path == "/broken":
            self.say(500, '{"result": "allow"}')
        else:
            self.say(404, "")

    def say(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), BackEnd)
server.daemon_threads = True
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print("port", server.server_address[1], flush=True)
server.serve_forever()
