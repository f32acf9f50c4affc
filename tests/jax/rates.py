"""rates.py OUTCOMES.jsonl...: how many of the tests that ran have passed, and why others failed."""
import collections
import json
import pathlib
import sys


def main():
    for name in sys.argv[1:]:
        path = pathlib.Path(name)
        text = path.read_text() if path.exists() else ""
        lines = [json.loads(line) for line in text.splitlines()]
        counts = collections.Counter(line["outcome"] for line in lines)
        ran = counts["passed"] + counts["failed"]
        rate = 100 * counts["passed"] / ran if ran else 0
        print(f"{path.stem:24} {counts['passed']:5} of {ran:5} passed  {rate:5.1f} %  "
              f"{counts['skipped']} skipped")
        reasons = collections.Counter(line["why"] for line in lines if line["outcome"] == "failed")
        for reason, count in reasons.most_common():
            print(f"  {count:4}  {reason}")


main()
