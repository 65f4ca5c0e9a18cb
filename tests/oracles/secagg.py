"""A client of a secure sum, transcribed from docs/protocol.md alone: numpy, hashlib and cryptography, and nothing of turnout.

It enrolls, trains by moving along a vector, and answers `train`, `share`, `mask` and `open`. One request at a time.
"""

import base64
import hashlib
import http.client
import json
import math
import secrets
import struct

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PRIME = 2**256 + 297
TYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "I16": "<i2", "U8": "u1"}


def agree(key, other, purpose):
    """HKDF-SHA256 of the X25519 secret."""
    secret = X25519PrivateKey.from_private_bytes(key).exchange(X25519PublicKey.from_public_bytes(other))
    return HKDF(SHA256(), 32, None, b"turnout secagg " + purpose.encode()).derive(secret)


def expand(seed, length, bits):
    """AES-256-CTR as whole numbers modulo 2^bits."""
    width = next(width for width in (1, 2, 4, 8) if bits <= 8 * width)
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor().update(bytes(length * width))
    words = [int.from_bytes(stream[i : i + width], "little") for i in range(0, len(stream), width)]
    return np.array([word % 2**bits for word in words], dtype=object)


def share(secret, threshold, points):
    """Shamir's shares of 32 bytes, 33 bytes each."""
    coefficients = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return {x: (sum(a * x**i for i, a in enumerate(coefficients)) % PRIME).to_bytes(33, "big") for x in points}


def commit(share_):
    """16 bytes by which the server recognizes a share."""
    return hashlib.sha256(b"turnout share " + share_).digest()[:16]


def public(key):
    """The public key of a private one."""
    return X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


def written(tensors):
    """A safetensors file of (type, shape, bytes) by name."""
    header, data = {}, b""
    for name, (kind, shape, content) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class GivesUp(Exception):
    """The client takes no further part in this sum."""


class Participant:
    """The cryptography of one sum, as `Secure sums` of the page has it."""

    def __init__(self, number, options):
        self.u, self.options = number, options
        self.sealing, self.masking, self.b = (secrets.token_bytes(32) for _ in range(3))

    def keys(self):
        return public(self.sealing) + public(self.masking)

    def share(self, neighbors, keys, weight):
        options, k = self.options, len(neighbors)
        self.t = max(k // 2 + 1, math.ceil(options["threshold"] * k - 1e-9))
        degree, limits = options["degree"], options["weights"] or [0.0, math.inf]
        most = k if degree is None else 2 * ((degree + 1) // 2)
        least = options["min_clients"] - 1 if degree is None else min(options["min_clients"] - 1, most)
        fits = least <= k <= most and self.t <= k
        different = len({*neighbors}) == k and min(neighbors) >= 1 and self.u not in neighbors
        if not (fits and different and math.isfinite(weight) and limits[0] <= weight <= limits[1]):
            raise GivesUp("share")
        self.weight, self.sealing_of, self.masking_of = weight, {}, {}
        of_b, of_key = (share(secret, self.t, neighbors) for secret in (self.b, self.masking))
        rows = []
        for v, both in zip(neighbors, keys, strict=True):
            self.sealing_of[v], self.masking_of[v] = both[:32], both[32:]
            purpose, nonce = f"share {self.u} {v}", secrets.token_bytes(12)
            cipher = AESGCM(agree(self.sealing, both[:32], purpose))
            sealed = cipher.encrypt(nonce, of_b[v] + of_key[v], purpose.encode())
            rows.append(nonce + sealed + commit(of_b[v]) + commit(of_key[v]))
        return rows

    def check(self, neighbors, clients):
        """The clients of the sum are as many as the run requires."""
        members = {self.u, *neighbors}
        if clients is not None and not members <= {*clients}:
            raise GivesUp("clients")
        if len(members if clients is None else {*clients}) < self.options["min_clients"]:
            raise GivesUp("too few")

    def mask(self, senders, sealed, delta):
        self.readable = {}
        for v, row in zip(senders, sealed, strict=True):
            purpose = f"share {v} {self.u}"
            try:
                cipher = AESGCM(agree(self.sealing, self.sealing_of[v], purpose))
                both = cipher.decrypt(row[:12], row[12:94], purpose.encode())
            except InvalidTag:
                continue
            if row[94:] == commit(both[:33]) + commit(both[33:]):
                self.readable[v] = both
        if len(self.readable) < len(senders) or len(self.readable) < self.t:
            raise GivesUp("mask")  # it computes no evidence, without which it may not refuse a row
        bits, x = self.options["bits"], self.weight * np.asarray(delta, dtype=np.float64)
        if np.abs(x).max() > self.options["largest"]:
            if self.options["too_large"] == "refuse":
                raise GivesUp("too large")
            x = np.clip(x, -self.options["largest"], self.options["largest"])
        total = np.array([int(n) for n in np.rint(x * 2.0 ** self.options["fraction_bits"])], dtype=object)
        total = total + expand(self.b, len(x), bits)
        for v in self.readable:
            low, high = sorted((self.u, v))
            mask = expand(agree(self.masking, self.masking_of[v], f"mask {low} {high}"), len(x), bits)
            total = total + mask if v > self.u else total - mask
        return total % 2**bits, [v not in self.readable for v in senders]

    def open(self, there, gone):
        if {*there} & {*gone} or not {*there, *gone} <= {*self.readable} or len(there) < self.t:
            raise GivesUp("open")
        return [self.readable[v][:33] for v in there], [self.readable[v][33:] for v in gone]


class Client:
    """A client over HTTP, whose update is always the same vector."""

    def __init__(self, address, delta, num_examples):
        self.address, self.delta, self.num_examples = address, np.asarray(delta), num_examples
        self.token, self.phases, self.over = secrets.token_urlsafe(32), [], False
        self.run = self._json("GET", "/v1/run")
        self.number = self._json("POST", "/v1/enrol", {"protocol": 2})["client"]

    def turn(self):
        """Ask for work, and do it."""
        answer = self._json("POST", "/v1/checkin", {"wait": 0})
        self.over = "over" in answer
        if "task" in answer:
            task = answer["task"]
            self.phases.append(task["phase"])
            self._report(task, written(self._answer(task)))

    def _answer(self, task):
        told = {name: self._told(*value) for name, value in task["told"].items()}
        if task["phase"] == "train":
            self.sum = Participant(self.number + 1, self.run["secure"])
            form = self.run["secure"]["training"]["report"]
            dtype = form["seen.loss"][0]
            return {
                "keys": ("U8", (1, 64), self.sum.keys()),
                "num_examples": ("I64", (1,), struct.pack("<q", self.num_examples)),
                "num_steps": ("I64", (1,), struct.pack("<q", 1)),
                "seen.loss": (dtype, (1,), np.array([0.5], dtype=TYPES[dtype]).tobytes()),
            }
        if task["phase"] == "share":
            rows = self.sum.share(
                told["neighbours"].tolist(), [r.tobytes() for r in told["keys"]], float(told["weight"])
            )
            return {"sealed": ("U8", (1, len(rows), 126), b"".join(rows))}
        self.sum.check(
            told["senders" if task["phase"] == "mask" else "there"].tolist(),
            None if self.run["secure"]["degree"] is None else told["clients"].tolist(),
        )
        if task["phase"] == "mask":
            senders = told["senders"].tolist()
            total, refused = self.sum.mask(senders, [row.tobytes() for row in told["sealed"]], self.delta)
            width = next(width for width in (1, 2, 4, 8) if self.run["secure"]["bits"] <= 8 * width)
            words = b"".join(int(word).to_bytes(width, "little") for word in total)
            kind = {1: "U8", 2: "I16", 4: "I32", 8: "I64"}[width]
            return {
                "masked": (kind, (1, len(total)), words),
                "refused": ("U8", (1, len(refused)), bytes(refused)),
                "evidence": ("U8", (1, len(refused), 96), bytes(96 * len(refused))),
            }
        there, gone = self.sum.open(told["there"].tolist(), told["gone"].tolist())
        shares = {"self_masks": there, "masking_keys": gone}
        return {name: ("U8", (1, len(rows), 33), b"".join(rows)) for name, rows in shares.items()}

    @staticmethod
    def _told(kind, shape, text):
        return np.frombuffer(bytes.fromhex(text), dtype=TYPES[kind]).reshape(shape)

    def _report(self, task, body):
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        headers = {"Repr-Digest": f"sha-256=:{digest}:", "Task-Fingerprint": task["fingerprint"]}
        status, answer = self._send("PUT", f"/v1/tasks/{task['task']}/report", body, headers)
        assert status == 201, (task["phase"], status, answer)

    def _json(self, method, path, body=None):
        status, answer = self._send(method, path, None if body is None else json.dumps(body).encode(), {})
        assert status in (200, 201), (path, status, answer)
        return json.loads(answer)

    def _send(self, method, path, body, headers):
        connection = http.client.HTTPConnection(self.address, timeout=30)
        connection.request(method, path, body, {"Authorization": f"Bearer {self.token}", **headers})
        response = connection.getresponse()
        answer = response.status, response.read()
        connection.close()
        return answer
