"""Writes golden/gpt2: a tiny GPT-2 in Hugging Face's layout, and what its packages compute with it.

    pip install transformers==5.24.0 tokenizers==0.23.3 torch
    python3 tests/peers/make_gpt2_golden.py

The vocabulary is trained on the GPL and on the sentences below, the weights are random.
"""
import json
import os
import shutil

import torch
from safetensors.torch import save_file
from tokenizers import ByteLevelBPETokenizer
from transformers import GPT2Config, GPT2LMHeadModel

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "gpt2")
END = "<|endoftext|>"

SENTENCES = [
    "It's what they've said: we'll go, I'm sure she'd come, don't you think they're late?",
    "IT'S NOT 's 'S 't're've'm'll'd ' 'x '' 's's can''t",
    "Der Fluß trägt große Schiffe über den Öresund; naïve façades, 12,5 °C.",
    "Привет, мир! Сегодня 3-е число, и мы не спешим.",
    "Η γλώσσα έχει λέξεις· πόσες; Σχεδόν 1000.",
    "שלום עולם, מה שלומך היום?",
    "مرحبا بالعالم، اليوم ١٢٣ يوم جميل.",
    "नमस्ते दुनिया, आज १२३ दिन है।",
    "今天天气很好,我们去公园散步吧。価格は１２３円です。ひらがなとカタカナ。",
    "안녕하세요 세계, 오늘은 좋은 날입니다.",
    "สวัสดีชาวโลก วันนี้ ๑๒๓ วัน",
    "👩‍👩‍👧‍👦 🇩🇪 👍🏽 😀😀  ❤️ ½ Ⅳ ² ₃",
    "a\tb\n\n  c \r\n   d\u00a0e\u3000f\u2028g\u0085h\u200bi \ufeff",
    "  leading, trailing  ", "\n", " ", "   ", "x", "\u0301e\u0301",
    "#include <a.h>\n\tint x=0x1F;",
    "e=mc^2 -- 3.14159e-10; [link](https://example.org/?q=a%20b&c=d)", END + " is text here",
    "\u0000\u0001\u007f\u0080\u00ad\u06dd\U000e0001\U0010ffff",
]
# Random strings consist of these and of code points of all planes.
PIECES = (list("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789 .,;:!?'\"()-_/\\\n\t\r") +
          ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", " the", " ", "  ", "   ", "ing", " a"] +
          [chr(c) for c in (0xA0, 0xB2, 0xBD, 0xDF, 0xE9, 0x301, 0x3B1, 0x3A9, 0x434, 0x5D0, 0x661,
                            0x627, 0x905, 0x93E, 0x967, 0xE01, 0x2003, 0x2028, 0x200B, 0x200D,
                            0x2163, 0x3000, 0x3042, 0x30AB, 0x4E2D, 0x6587, 0xAC00, 0xFF11, 0xFE0F,
                            0x1F600, 0x1F44D, 0x1F3FD, 0x10400, 0x1D7D8)])
STRINGS, CHUNK = 6000, 500


class Random:
    """Random numbers that the test generates in the same way."""

    def __init__(self):
        self.state = 12345

    def below(self, end):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % end


def random_string(random):
    text = ""
    for _ in range(random.below(24)):
        if random.below(8) > 0:
            text += PIECES[random.below(len(PIECES))]
        else:
            code = random.below(0x110000)
            text += chr(code if not 0xD800 <= code < 0xE000 else 0x20)
    return text


def hash_of(ids, value):
    """FNV-1a over the ids and their number."""
    for number in [len(ids)] + ids:
        value = (value ^ number) * 0x100000001B3 % 2**64
    return value


def random_hashes(tokenizer):
    random, hashes = Random(), []
    for i in range(STRINGS):
        if i % CHUNK == 0:
            hashes.append(0xCBF29CE484222325)
        hashes[-1] = hash_of(tokenizer.encode(random_string(random)).ids, hashes[-1])
    return ["%016x" % value for value in hashes]


def write_tokenizer():
    with open("/usr/share/common-licenses/GPL-3") as file:
        lines = file.read().splitlines(keepends=True)
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(lines + SENTENCES * 3, vocab_size=512, min_frequency=2,
                                  show_progress=False, special_tokens=[])
    tokenizer.save_model(OUT)
    vocab = json.load(open(os.path.join(OUT, "vocab.json")))
    vocab[END] = len(vocab)
    with open(os.path.join(OUT, "vocab.json"), "w") as file:
        json.dump(vocab, file)
    return ByteLevelBPETokenizer(os.path.join(OUT, "vocab.json"), os.path.join(OUT, "merges.txt"))


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(OUT)
    tokenizer = write_tokenizer()
    end = tokenizer.token_to_id(END)
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=end + 1, n_positions=48, n_embd=16, n_layer=2, n_head=4,
                        layer_norm_epsilon=1e-5, bos_token_id=end, eos_token_id=end)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():  # so that every parameter matters, and tokens differ
        for name, x in model.named_parameters():
            scale = 1.0 if "wpe" in name else 0.3
            x.copy_(torch.randn(x.shape) * scale + ("ln" in name and "weight" in name))
    model.save_pretrained(OUT)
    generation = os.path.join(OUT, "generation_config.json")
    if os.path.exists(generation):
        os.remove(generation)
    prompt = tokenizer.encode("The licensee may convey a work").ids
    batch = torch.tensor([prompt[:10], list(reversed(prompt[:10]))])
    with torch.no_grad():
        logits = model(batch).logits
        loss = model(batch, labels=batch).loss
        greedy = model.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False,
                                attention_mask=torch.ones(1, len(prompt)), pad_token_id=end)
    save_file({"ids": batch.int(), "logits": logits.contiguous()},
              os.path.join(OUT, "logits.safetensors"))
    expected = {
        "loss": float(loss),
        "greedy": {"prompt_ids": prompt, "ids": greedy[0, len(prompt):].tolist()},
        "texts": [{"text": text, "ids": tokenizer.encode(text).ids} for text in SENTENCES],
        "pieces": PIECES,
        "strings": STRINGS,
        "hashes": random_hashes(tokenizer),
    }
    with open(os.path.join(OUT, "expected.json"), "w") as file:
        json.dump(expected, file)


main()
