"""Small programs that ranks run: they note their processes, speak the launch contract, and hide."""

import sys

_PRELUDE = """
import json, os, signal, sys, time
RANK = int(os.environ["RANK"])
MARKS = os.environ["MARKS"]

def mark(name):
    open(f"{MARKS}/.{name}", "w").write(str(os.getpid()))
    os.rename(f"{MARKS}/.{name}", f"{MARKS}/{name}")

def say(kind, **line):
    with open(os.environ["GRIDLOOM_REPORT_FILE"], "a") as file:
        file.write(json.dumps({"kind": kind, **line}) + "\\n")

def on_term(handler):
    signal.signal(signal.SIGTERM, handler)

def wait_for(name):
    while not os.path.exists(f"{MARKS}/{name}"):
        time.sleep(0.01)

def hold():
    while True:
        time.sleep(60)
"""

STAY = "mark(f'rank-{RANK}'); hold()"
"""Lives until it is asked to end."""

DEAF = "on_term(signal.SIG_IGN); mark(f'rank-{RANK}'); hold()"
"""Does not end when asked."""

SAVES = """
def save(*_):
    say("checkpoint", step=7, path="/c")
    os._exit(75)
on_term(save)
say("ready")
say("step", step=7)
mark(f"rank-{RANK}")
hold()
"""
"""Saves its state when asked to stop, as the launch contract says."""

_HIDE = """
def child(name, *, session=False, daemon=False, env=None):
    if os.fork():
        return
    if session or daemon:
        os.setsid()
    if daemon and os.fork():
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if env is not None:
        code = f"import os; open('{MARKS}/.{name}', 'w').write(str(os.getpid()));"
        code += f"os.rename('{MARKS}/.{name}', '{MARKS}/{name}'); import time; time.sleep(600)"
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code], env)
    mark(name)
    hold()

child("child")
child("session", session=True)
child("daemon", daemon=True)
"""

HIDES = _HIDE + "mark('rank-0'); wait_for('go')"
"""Leaves processes behind that ignore signals, leave their session, lose their parent."""

HIDES_WELL = _HIDE + "child('bare', daemon=True, env={}); mark('rank-0'); wait_for('go')"
"""The same, and a daemon that carries nothing of the task in its environment."""


def python(body: str) -> tuple[str, ...]:
    """Return the command line of a program that starts fast."""
    return (sys.executable, "-I", "-S", "-c", _PRELUDE + body)
