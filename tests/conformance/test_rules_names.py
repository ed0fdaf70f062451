"""Contract 1.4 and 1.5: what an engine may be called, and how engines live and end."""

import pytest
from harness.peer import FAILED, NOT_CONNECTED, PARAM_INVALID, SUCCESS


@pytest.mark.parametrize("name", ["127.0.0.1", "127.0.0.1:0", "127.0.0.1:-1", "[::1]", "[::1]:0"])
def test_rule_1_4_client_only_ok(run, name):
    # Two engines may share a name on which nobody listens.
    assert run("[type(engine(name=name)).__name__, type(engine(name=name)).__name__]", name=name) == ["Hixl"] * 2


@pytest.mark.parametrize("name", ["127.0.0.1", "127.0.0.1:0"])
def test_rule_1_4_client_only_bad(run, name):
    assert run("engine(name=name)\nengine().connect(name)", name=name) == PARAM_INVALID


def test_rule_1_4_listens_ok(run):
    assert run("""
e, name = listening()
probe = socket.create_connection(('127.0.0.1', int(name.split(':')[1])), 5)
probe.close()
True
""") is True


def test_rule_1_4_listens_bad(run):
    # A name is taken once.
    assert run("e, name = listening()\ninitialize(name=name)") == FAILED


@pytest.mark.parametrize("name", ["ad.0.0.1:26200", "localhost:26000", "", "127.0.0.1:65536", "127.0.0.1:x",
                                  "127.0.0.1:", "::1:26000", "[::1:26000", "[::1]26000", "1.2.3:1",
                                  "127.0.0.1 :1", "127.0.0.1:1:1"])
def test_rule_1_4_ip_literals_bad(run, name):
    assert run("[initialize(name=name), engine().connect(name)]", name=name) == [PARAM_INVALID] * 2


def test_rule_1_4_ip_literals_ok(run):
    assert run("""
name = '[::1]:' + free_name().split(':')[1]
there = engine(name=name)
engine(name='[::1]').connect(name)
""") == SUCCESS


def test_rule_1_4_several_engines_ok(run):
    # Two engines of one process, bound to different devices, talk to each other.
    assert run("""
a, b = hixl.Hixl(), hixl.Hixl()
names = [free_name(), free_name()]
statuses = [e.initialize(n, {}, device_id=d) for e, n, d in ((a, names[0], 0), (b, names[1], 1))]
engines.extend((a, b))
local, remote = memory(256), memory(256, 3)
register(a, local, 256)
register(b, remote, 256)
[statuses, a.connect(names[1]), b.connect(names[0]), a.transfer_sync(names[1], READ, [piece(local, remote, 256)]),
 b.transfer_sync(names[0], WRITE, [piece(remote, local, 256)]), content(local, 256) == bytes([3]) * 256]
""") == [[SUCCESS, SUCCESS], SUCCESS, SUCCESS, SUCCESS, SUCCESS, True]


def test_rule_1_4_any_thread_ok(run):
    # Twenty threads, none of which initialised, transfer over one link at once.
    assert run("""
here, there, name, local, remote = pair(nbytes=20 * 4096)
outcomes = [None] * 20
def work(i):
    status, request = here.transfer_async(name, READ, [piece(local + i * 4096, remote + i * 4096, 4096)])
    outcomes[i] = (status, *ended(here, request))
threads = [threading.Thread(target=work, args=(i,)) for i in range(20)]
for t in threads: t.start()
for t in threads: t.join()
[set(outcomes) == {(0, 0, 'COMPLETED')}, content(local, 20 * 4096) == bytes([7]) * 20 * 4096]
""") == [True, True]


def test_rule_1_5_finalize_with_everything_open_ok(run):
    assert run("""
here, there, name, local, remote = pair()
here.transfer_async(name, READ, [piece(local, remote, 4096)])
here.connect_async('127.0.0.1:19999', 500)
here.finalize()
there.finalize()
again = engine(name=name)
again.get_notifies()[0]
""") == SUCCESS


def test_rule_1_5_server_goes_first_bad(run):
    assert run("""
here, there, name, local, remote = pair()
there.finalize()
[here.transfer_sync(name, READ, [piece(local, remote, 16)], 500) in (hixl.FAILED, hixl.TIMEOUT),
 here.disconnect(name), here.disconnect(name)]
""") == [True, SUCCESS, NOT_CONNECTED]


def test_rule_1_5_name_is_free_after_finalize_ok(run):
    assert run("""
name = free_name()
statuses = []
for _ in range(5):
    e = hixl.Hixl()
    statuses.append(e.initialize(name))
    e.finalize()
statuses
""") == [SUCCESS] * 5


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_rule_1_5_any_order_ok(run, order):
    # Linked both ways, finalised in either order, by two threads at once in the end.
    assert run("""
def linked():
    a, na = listening()
    b, nb = listening()
    assert a.connect(nb) == 0 and b.connect(na) == 0
    return {'a': a, 'b': b}
both = linked()
for name in order:
    both[name].finalize()
both = linked()
threads = [threading.Thread(target=both[name].finalize) for name in order]
for t in threads: t.start()
for t in threads: t.join()
[both[name].get_notifies()[0] for name in order]
""", order=order) == [FAILED, FAILED]
