"""Ways by which a value, a call or a setting reaches TensorFlow: what is wrong is found by each of them."""

from __future__ import annotations

import textwrap

import pytest

from linting import found_in, rules_in

VALUE = "'[0, 1]'"
"""What flows; as the mask it hides every GPU."""
USE = "os.environ['CUDA_VISIBLE_DEVICES'] = {}\nimport tensorflow as tf\n"
WAYS_OF_A_VALUE = {
    "itself": ("", VALUE),
    "constant": (f"MASK = {VALUE}", "MASK"),
    "annotated": (f"mask: str = {VALUE}", "mask"),
    "walrus": ("", f"(mask := {VALUE})"),
    "unpacked": (f"mask, number = {VALUE}, 3", "mask"),
    "unpacked with a star": (f"mask, *rest = [{VALUE}, 3, 4]", "mask"),
    "item of a list": (f"masks = ['0', {VALUE}]", "masks[1]"),
    "last item": (f"masks = ['0', {VALUE}]", "masks[-1]"),
    "appended": (f"masks = []\nmasks.append({VALUE})", "masks[0]"),
    "popped": (f"masks = ['0', {VALUE}]", "masks.pop()"),
    "slice": (f"masks = ['0', {VALUE}, '1']", "masks[1:][0]"),
    "dictionary": (f"config = {{'mask': {VALUE}}}", "config['mask']"),
    "dictionary, get": (f"config = {{'mask': {VALUE}}}", "config.get('mask', '0')"),
    "dictionary, default": ("config = {}", f"config.get('mask', {VALUE})"),
    "dictionary, made by dict": (f"config = dict(mask={VALUE})", "config['mask']"),
    "dictionary, item assigned": (f"config = {{}}\nconfig['mask'] = {VALUE}", "config['mask']"),
    "dictionary, updated": (f"config = {{'mask': '0'}}\nconfig.update(mask={VALUE})", "config['mask']"),
    "dictionary, merged": (f"config = {{**{{'mask': '0'}}, 'mask': {VALUE}}}", "config['mask']"),
    "dictionary, union": (f"config = {{'mask': '0'}} | {{'mask': {VALUE}}}", "config['mask']"),
    "dictionary in a dictionary": (f"config = {{'gpu': {{'mask': {VALUE}}}}}", "config['gpu']['mask']"),
    "comprehension": (f"masks = [mask for mask in [{VALUE}]]", "masks[0]"),
    "dictionary comprehension": (f"masks = {{key: value for key, value in [('mask', {VALUE})]}}", "masks['mask']"),
    "loop over a list": (f"for mask in ['0', {VALUE}]:\n    pass", "mask"),
    "function": (f"def mask():\n    return {VALUE}", "mask()"),
    "lambda": (f"mask = lambda: {VALUE}", "mask()"),
    "parameter": ("def same(mask):\n    return mask", f"same({VALUE})"),
    "default of a parameter": (f"def same(number, mask={VALUE}):\n    return mask", "same(1)"),
    "keyword": ("def same(*, mask):\n    return mask", f"same(mask={VALUE})"),
    "arguments": ("def first(*masks):\n    return masks[0]", f"first({VALUE}, '1')"),
    "keywords": ("def of(**options):\n    return options['mask']", f"of(mask={VALUE})"),
    "arguments from a list": ("def second(a, b):\n    return b", f"second(*['0', {VALUE}])"),
    "keywords from a dictionary": ("def of(mask):\n    return mask", f"of(**{{'mask': {VALUE}}})"),
    "partial": ("from functools import partial\ndef of(mask):\n    return mask", f"partial(of, {VALUE})()"),
    "two functions": (f"def one():\n    return {VALUE}\ndef two():\n    mask = one()\n    return mask", "two()"),
    "global": (f"MASK = None\ndef choose():\n    global MASK\n    MASK = {VALUE}\nchoose()", "MASK"),
    "nonlocal function": (
        f"def outer():\n    mask = {VALUE}\n    def inner():\n        return mask\n    return inner()",
        "outer()",
    ),
    "attribute of a class": (f"class Config:\n    MASK = {VALUE}", "Config.MASK"),
    "attribute of an object": (f"class Config:\n    def __init__(self):\n        self.mask = {VALUE}", "Config().mask"),
    "parameter of a class": (
        "class Config:\n    def __init__(self, mask):\n        self.mask = mask",
        f"Config({VALUE}).mask",
    ),
    "method": (f"class Config:\n    def mask(self):\n        return {VALUE}", "Config().mask()"),
    "property": (f"class Config:\n    @property\n    def mask(self):\n        return {VALUE}", "Config().mask"),
    "static method": (f"class Config:\n    @staticmethod\n    def mask():\n        return {VALUE}", "Config.mask()"),
    "class method": (
        f"class Config:\n    MASK = {VALUE}\n    @classmethod\n    def mask(cls):\n        return cls.MASK",
        "Config.mask()",
    ),
    "base class": (f"class Base:\n    mask = {VALUE}\nclass Config(Base):\n    pass", "Config().mask"),
    "super": (
        f"class Base:\n    def __init__(self, mask):\n        self.mask = mask\n"
        f"class Config(Base):\n    def __init__(self):\n        super().__init__({VALUE})",
        "Config().mask",
    ),
    "second of two objects": (
        f"class Config:\n    def __init__(self, mask):\n        self.mask = mask\n"
        f"one = Config('0')\ntwo = Config({VALUE})",
        "two.mask",
    ),
    "dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass Config:\n    batch: int\n    mask: str = '0'",
        f"Config(8, mask={VALUE}).mask",
    ),
    "default of a dataclass": (
        f"from dataclasses import dataclass\n@dataclass\nclass Config:\n    batch: int = 8\n    mask: str = {VALUE}",
        "Config().mask",
    ),
    "default of a field": (
        f"from dataclasses import dataclass, field\n@dataclass\nclass Config:\n    mask: str = field(default={VALUE})",
        "Config().mask",
    ),
    "factory of a field": (
        f"from dataclasses import dataclass, field\n@dataclass\nclass Config:\n"
        f"    masks: list = field(default_factory=lambda: [{VALUE}])",
        "Config().masks[0]",
    ),
    "named tuple": (
        "from typing import NamedTuple\nclass Config(NamedTuple):\n    batch: int\n    mask: str",
        f"Config(8, {VALUE}).mask",
    ),
    "namespace": (f"from types import SimpleNamespace\nconfig = SimpleNamespace(mask={VALUE})", "config.mask"),
    "enum": (f"from enum import Enum\nclass Mask(Enum):\n    BOTH = {VALUE}", "Mask.BOTH.value"),
    "option": (
        f"import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--mask', default={VALUE})\n"
        "args = parser.parse_args()",
        "args.mask",
    ),
    "option, known": (
        f"import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('-m', '--mask', default={VALUE})\n"
        "args, _ = parser.parse_known_args()",
        "args.mask",
    ),
    "option of a function": (
        f"import argparse\ndef parse():\n    parser = argparse.ArgumentParser()\n"
        f"    parser.add_argument('--mask', default={VALUE})\n    return parser.parse_args()\nargs = parse()",
        "args.mask",
    ),
    "option, as a dictionary": (
        f"import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--mask', default={VALUE})\n"
        "args = vars(parser.parse_args())",
        "args['mask']",
    ),
    "flag": (
        f"from absl import flags\nflags.DEFINE_string('mask', {VALUE}, 'GPUs')\nFLAGS = flags.FLAGS",
        "FLAGS.mask",
    ),
    "option of a type": (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--gpus', type=list, default='0,1')\n"
        "args = parser.parse_args()",
        "','.join(args.gpus)",
    ),
    "text of a list": ("gpus = [0, 1]", "str(gpus)"),
    "formatted list": ("gpus = [0, 1]", "f'{gpus}'"),
    "format of a list": ("gpus = [0, 1]", "'{}'.format(gpus)"),
    "text of a range": ("", "str(list(range(2)))"),
    "joined with the wrong sign": ("gpus = ['[0', '1]']", "','.join(gpus)"),
    "default of or": ("mask = None", f"mask or {VALUE}"),
    "the same in both branches": (f"if input():\n    mask = {VALUE}\nelse:\n    mask = {VALUE}", "mask"),
    "set in try": (f"try:\n    mask = {VALUE}\nexcept ValueError:\n    pass", "mask"),
    "match": (
        f"mask = {VALUE}\nmatch input():\n    case 'a':\n        number = 1\n    case _:\n        number = 2",
        "mask",
    ),
    "getattr": (f"class Config:\n    mask = {VALUE}", "getattr(Config, 'mask')"),
    "getattr with a default": (f"class Config:\n    mask = {VALUE}", "getattr(Config, 'mask', '0')"),
    "setattr": (f"class Config:\n    pass\nconfig = Config()\nsetattr(config, 'mask', {VALUE})", "config.mask"),
}


@pytest.mark.parametrize("way", WAYS_OF_A_VALUE)
def test_value_is_followed(way: str) -> None:
    before, value = WAYS_OF_A_VALUE[way]
    assert rules_in(f"import os\n{before}\n{USE.format(value)}") == ["mask_names_no_gpu"]


WAYS_OF_A_SETTING = {
    "item": "os.environ[{name}] = {value}",
    "setdefault": "os.environ.setdefault({name}, {value})",
    "update": "os.environ.update({{{name}: {value}}})",
    "union": "os.environ |= {{{name}: {value}}}",
    "putenv": "os.putenv({name}, {value})",
    "method": "os.environ.__setitem__({name}, {value})",
    "another name": "env = os.environ\nenv[{name}] = {value}",
    "imported": "from os import environ\nenviron[{name}] = {value}",
    "imported function": "from os import putenv\nputenv({name}, {value})",
    "loop over items": "for key, setting in {{{name}: {value}}}.items():\n    os.environ[key] = setting",
    "loop over pairs": "for key, setting in [({name}, {value})]:\n    os.environ[key] = setting",
    "function": "def put(key, setting):\n    os.environ[key] = setting\nput({name}, {value})",
    "method of an object": (
        "class Env:\n    def __init__(self, settings):\n        self.settings = settings\n    def apply(self):\n"
        "        os.environ.update(self.settings)\nEnv({{{name}: {value}}}).apply()"
    ),
    "child": "import subprocess\nsubprocess.run(['python'], env={{{name}: {value}}})",
    "child, copy": (
        "import subprocess\nenv = os.environ.copy()\nenv[{name}] = {value}\nsubprocess.Popen(['python'], env=env)"
    ),
    "child, dict": "import subprocess\nsubprocess.run(['python'], env=dict(os.environ, **{{{name}: {value}}}))",
    "child, merged": "import subprocess\nsubprocess.call(['python'], env={{**os.environ, {name}: {value}}})",
    "child, union": "import subprocess\nsubprocess.call(['python'], env=os.environ | {{{name}: {value}}})",
    "child, exec": "env = dict(os.environ)\nenv[{name}] = {value}\nos.execve('python', ['python'], env)",
}


@pytest.mark.parametrize("way", WAYS_OF_A_SETTING)
def test_setting_is_followed(way: str) -> None:
    text = WAYS_OF_A_SETTING[way].format(name="'TF_FORCE_GPU_ALLOW_GROWTH'", value="'1'")
    assert rules_in(f"import os\nimport tensorflow as tf\n{text}\n") == ["value_not_accepted"]


GROWTH = "tf.config.experimental.set_memory_growth(gpu, True)"
EACH = f"for gpu in gpus:\n    {GROWTH}\n"
DEFINED = f"def growth():\n{textwrap.indent(EACH, '    ')}"
LISTED = "gpus = tf.config.list_physical_devices('GPU')\n"
CALLED = "for gpu in gpus:\n    growth(gpu, True)"
WAYS_OF_A_CALL = {
    "for each": EACH,
    "of one": f"gpu = gpus[0]\n{GROWTH}",
    "for each number": "for i in range(len(gpus)):\n    tf.config.experimental.set_memory_growth(gpus[i], True)",
    "enumerated": f"for i, gpu in enumerate(gpus):\n    {GROWTH}",
    "comprehension": f"[{GROWTH} for gpu in gpus]",
    "function": f"{DEFINED}growth()",
    "function of one": f"def growth(gpu):\n    {GROWTH}\nfor gpu in gpus:\n    growth(gpu)",
    "another name": f"growth = tf.config.experimental.set_memory_growth\n{CALLED}",
    "imported": f"from tensorflow.config.experimental import set_memory_growth as growth\n{CALLED}",
    "getattr": f"growth = getattr(tf.config.experimental, 'set_memory_growth')\n{CALLED}",
    "partial": f"import functools\ngrowth = functools.partial(tf.config.experimental.set_memory_growth)\n{CALLED}",
    "method": f"class Setup:\n{textwrap.indent(DEFINED.replace('()', '(self)'), '    ')}\nSetup().growth()",
    "called object": f"class Setup:\n    def __call__(self):\n{textwrap.indent(EACH, ' ' * 8)}\nSetup()()",
    "in try": f"try:\n{textwrap.indent(EACH, '    ')}except RuntimeError as error:\n    print(error)",
    "in main": f"{DEFINED}if __name__ == '__main__':\n    growth()",
    "in absl's main": f"from absl import app\n{DEFINED.replace('()', '(argv)')}app.run(growth)",
    "one of several functions": f"{DEFINED}for step in (print, growth):\n    step()",
    "of a table": f"{DEFINED}{{'growth': growth}}['growth']()",
    "decorated": f"import functools\n@functools.cache\n{DEFINED}growth()",
}


@pytest.mark.parametrize("way", WAYS_OF_A_CALL)
def test_call_is_followed(way: str) -> None:
    text = f"import tensorflow as tf\n{LISTED}x = tf.zeros([1])\n{WAYS_OF_A_CALL[way]}\n"
    assert "configured_after_init" in rules_in(text)


SESSION = (
    "sess = tf.Session()\nwith tf.device('/GPU:1'):\n    for step in range(99):\n        print(step, sess.run({}))\n"
)
DECORATED = """
def on(name):
    def decorate(function):
        with tf.device(name):
            def wrapper():
                return function()
            return wrapper
    return decorate
@on('/GPU:0')
def make():
    return tf.zeros([2])
"""
YIELDS = """
def batches():
    with tf.device('/CPU:0'):
        for batch in tf.data.Dataset.range(9):
            yield batch
for step, batch in enumerate(batches()):
    with tf.GradientTape() as tape:
        loss = batch * 2
"""
ENTERS = """
import contextlib
@contextlib.contextmanager
def on(name):
    with tf.device(name):
        yield
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
with on('/CPU:0'):
    model.fit(tf.ones([4, 2]), tf.ones([4]))
"""
LEAVES = YIELDS.replace("            yield batch", "            pass\n    yield batch")
SHARED = "strategy = tf.distribute.MirroredStrategy()\nwith strategy.scope():\n    model = tf.keras.Sequential()\n"
BATCH = "model.train_on_batch(tf.ones([4, 2]), tf.ones([4]))\n"
GRAPH = "import tensorflow.compat.v1 as tf\ntf.disable_eager_execution()\n"
ON_GPU = "with tf.device('/GPU:1'):\n    x = tf.zeros([2])\n"
WAYS_OF_A_SCOPE = {
    "around what a session runs": (f"{GRAPH}{SESSION.format('step')}", ["device_scope_ignored"]),
    "around an operation that a session runs": (f"{GRAPH}x = tf.zeros([2])\n{SESSION.format('x * 2')}", []),
    "that a decorator opens too early": (f"{DECORATED}make()\n", ["device_scope_ignored"]),
    "that a decorator opens in the call": (
        DECORATED.replace(
            "        with tf.device(name):\n            def", "        if True:\n            def"
        ).replace("                return", "                with tf.device(name):\n                    return"),
        [],
    ),
    "that a generator leaves open": (f"# trained on the GPU\n{YIELDS}", ["trained_on_cpu"]),
    "that a generator leaves before it yields": (f"# trained on the GPU\n{LEAVES}", []),
    "of a context manager": (f"# trained on the GPU\n{ENTERS}", ["trained_on_cpu"]),
    "of a strategy, for one batch": (SHARED + BATCH, ["dataset_not_distributed"]),
    "of one device, for one batch": (SHARED.replace("MirroredStrategy(", "OneDeviceStrategy('/GPU:0'") + BATCH, []),
    "in a session, which raises without the GPU": (f"{GRAPH}{ON_GPU}tf.Session().run(x)\n", []),
    "in a session with soft placement": (
        f"{GRAPH}{ON_GPU}tf.Session(config=tf.ConfigProto(allow_soft_placement=True)).run(x)\n",
        ["index_beyond_mask"],
    ),
}


@pytest.mark.parametrize("way", WAYS_OF_A_SCOPE)
def test_scope_is_followed(way: str) -> None:
    text, rules = WAYS_OF_A_SCOPE[way]
    assert rules_in(f"import tensorflow as tf\n{text}") == rules


STARTS = """
import os, subprocess
def start(rank):
    env = dict(os.environ)
    env['CUDA_VISIBLE_DEVICES'] = str(rank {})
    subprocess.Popen(['python', 'train.py'], env=env)
for rank in range({}):
    start(rank)
"""


@pytest.mark.parametrize(
    ("number", "processes", "found"), [("// 2", 2, True), ("% 2", 2, False), ("// 2", 3, False), ("// 4", 8, False)]
)
def test_one_mask_for_all_processes_is_found(number: str, processes: int, found: bool) -> None:
    assert rules_in(STARTS.format(number, processes)) == ["processes_share_a_gpu"] * found


def test_a_second_mask_is_not_to_be_set_earlier() -> None:
    text = "import os\nimport tensorflow as tf\n{}tf.zeros([2])\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\n"
    first = "os.environ['CUDA_VISIBLE_DEVICES'] = '0'\n"
    fixes = [found_in(text.format(before))[-1].fix[0].note for before in ("", first)]
    assert "process for each mask" in fixes[1]
    assert "process" not in fixes[0]


@pytest.mark.parametrize(("backend", "found"), [("tensorflow", True), ("jax", False)])
def test_distribution_of_keras_is_for_jax(backend: str, found: bool) -> None:
    text = f"import os\nos.environ['KERAS_BACKEND'] = '{backend}'\nimport keras\n"
    text += "keras.distribution.set_distribution(keras.distribution.DataParallel())\n"
    assert rules_in(text) == ["setting_ignored"] * found
