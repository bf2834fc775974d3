"""Parameters of the presets against what their checkpoints hold."""

from __future__ import annotations

import subprocess
import sys

import pytest

from adaptpipe.models.costs import PRESETS, parameters, preset
from adaptpipe.models.costs.structure import structure
from adaptpipe.solver import InputError

# Numbers in the checkpoints' safetensors files, as the Hugging Face hub shows them for meta-llama/Llama-2-7b-hf and so
# on (`safetensors.total` of its API; for the larger ones model.safetensors.index.json's total_size over 2 bytes). Those
# of Qwen3 0.6B and 1.7B hold the tied matrix twice (751,632,384 and 2,031,739,904 numbers); it is one parameter.
CHECKPOINTS = {
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "gemma2-2b": 2_614_341_888,
    "gemma2-9b": 9_241_705_984,
    "gemma2-27b": 27_227_128_320,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_419_200,  # README_WEIGHTS.md: 671B without, 685B with the block that predicts further tokens
    "qwen2-vl-7b": 8_291_375_616,
}

# GPT-3 has no checkpoint. With h its width and n its blocks: 12nh² + 13nh for the blocks, (50257 + 2048)h for tokens
# and positions, and 2h for the last norm (Brown et al. 2020, table 2.1; vocabulary and positions of its section 2.1).
GPT3 = {
    "gpt3-small": (12, 768),
    "gpt3-medium": (24, 1024),
    "gpt3-large": (24, 1536),
    "gpt3-xl": (24, 2048),
    "gpt3-2.7b": (32, 2560),
    "gpt3-6.7b": (32, 4096),
    "gpt3-13b": (40, 5120),
    "gpt3-175b": (96, 12288),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_preset_has_the_parameters_of_its_checkpoint(name: str) -> None:
    assert parameters(preset(name)) == CHECKPOINTS[name]


@pytest.mark.parametrize("name", GPT3)
def test_gpt3_has_the_parameters_of_its_dimensions(name: str) -> None:
    n, h = GPT3[name]
    assert parameters(preset(name)) == 12 * n * h**2 + 13 * n * h + (50257 + 2048 + 2) * h


def test_every_preset_is_counted() -> None:
    assert {*CHECKPOINTS, *GPT3} == set(PRESETS)


def test_the_further_block_has_its_own_parameters_and_shares_two_matrices() -> None:
    """DeepSeek-V3's README_WEIGHTS.md: 11.5B unique parameters, without the shared embedding and head of 0.9B each."""
    model = preset("deepseek-v3")
    further = next(layer for layer in structure(model, 1) if layer.kind == "mtp")
    assert further.parameters - 2 * model.vocab * model.hidden == pytest.approx(11.5e9, rel=0.01)


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("Llama3.1-8B", "llama3-8b"),
        ("GPT3", "gpt3-175b"),
        ("google/gemma-2-9b", "gemma2-9b"),
        ("Qwen/Qwen3-8B", "qwen3-8b"),
    ],
)
def test_other_names(name: str, same: str) -> None:
    assert preset(name) == preset(same)


def test_no_two_names_are_alike() -> None:
    assert len({name.replace("-", "") for name in PRESETS}) == len(PRESETS)


def test_an_unknown_name_is_refused_with_a_near_one() -> None:
    with pytest.raises(InputError, match=r"model 'lama3-8b': unknown; did you mean llama3-8b\? there are gpt3-small, "):
        preset("lama3-8b")


def test_costs_need_no_torch() -> None:
    code = "import sys, adaptpipe.models.costs; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
