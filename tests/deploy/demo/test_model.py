"""The demo's model and its paged cache, without any daemon."""

import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[3] / "deploy" / "demo"
sys.path.insert(0, str(DEMO))

np = pytest.importorskip("numpy")
from model import CHECKPOINT, Transformer, decode, prefill  # noqa: E402
from paged_cache import BLOCK_TOKENS, PagedCache, Sequence, blocks_for  # noqa: E402

PROMPT = b"She had been friend and governess in the family for many years, and was"
TOKENS = 40


@pytest.fixture(scope="module")
def model():
    return Transformer.load()


def cache_of(model, blocks):
    return PagedCache(model.config, blocks, bytearray(PagedCache.bytes_needed(model.config, blocks)))


def single_run(model):
    blocks = blocks_for(len(PROMPT) + TOKENS)
    sequence = Sequence(cache_of(model, blocks), range(blocks))
    return decode(model, prefill(model, PROMPT, sequence), TOKENS, sequence)


def test_the_checkpoint_takes_at_most_two_megabytes():
    assert Path(CHECKPOINT).stat().st_size <= 2_000_000


def test_scattered_blocks_give_the_tokens_of_contiguous_ones(model):
    cache = cache_of(model, 50)
    sequence = Sequence(cache, cache.shuffled_blocks(blocks_for(len(PROMPT) + TOKENS), seed=9))
    assert decode(model, prefill(model, PROMPT, sequence), TOKENS, sequence) == single_run(model)


def test_a_cache_copied_block_by_block_gives_the_tokens_of_a_single_run(model):
    source = cache_of(model, 30)
    prefilled = Sequence(source, source.shuffled_blocks(blocks_for(len(PROMPT)), seed=1))
    first = prefill(model, PROMPT, prefilled)
    target = cache_of(model, 20)
    sequence = Sequence(target, target.shuffled_blocks(blocks_for(len(PROMPT) + TOKENS), seed=2),
                        length=len(PROMPT))
    for there, here in zip(prefilled.used_blocks(), sequence.used_blocks()):
        target.data[:, :, here] = source.data[:, :, there]
    assert decode(model, first, TOKENS, sequence) == single_run(model)


def test_lost_blocks_change_the_tokens(model):
    blocks = blocks_for(len(PROMPT) + TOKENS)
    cache = cache_of(model, blocks)
    sequence = Sequence(cache, range(blocks))
    first = prefill(model, PROMPT, sequence)
    cache.data[:, :, : len(PROMPT) // BLOCK_TOKENS] = 0
    assert decode(model, first, TOKENS, sequence) != single_run(model)


def test_chunk_offsets_are_where_the_cache_keeps_the_block(model):
    blocks = 7
    memory = bytearray(PagedCache.bytes_needed(model.config, blocks))
    cache = PagedCache(model.config, blocks, memory)
    cache.data[:, :, 3] = 1.5
    size = PagedCache.chunk_bytes(model.config)
    expected = np.full(size // 2, 1.5, np.float16).tobytes()
    offsets = cache.chunk_offsets(3)
    assert [memory[o : o + size] for o in offsets] == [expected] * (2 * model.config.layers)
    assert sum(memory.count(value) for value in [expected]) == len(offsets)


def test_the_model_has_learnt_english(model):
    """Held-out style: real text must be far likelier than the same letters shuffled."""
    text = PROMPT
    scrambled = bytes(np.random.default_rng(0).permutation(np.frombuffer(text, np.uint8)))
    assert likelihood(model, text) < 2.0
    assert likelihood(model, scrambled) > 3.5


def likelihood(model, text):
    """Nats per byte that the model needs for `text`."""
    blocks = blocks_for(len(text))
    sequence = Sequence(cache_of(model, blocks), range(blocks))
    total = 0.0
    for token, following in zip(text, text[1:]):
        logits = model.step(token, sequence)
        total += np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[following]
    return total / (len(text) - 1)


def test_a_full_sequence_refuses_another_token(model):
    sequence = Sequence(cache_of(model, 1), [0], length=BLOCK_TOKENS)
    with pytest.raises(ValueError, match="full: 16 tokens"):
        model.step(65, sequence)
