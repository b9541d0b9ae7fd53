"""Install every peer into its own virtual environment.

    python benchmarks/peers/install.py [--into FOLDER] [PEER ...]

The default directory is the environment variable HEEDFUL_PEERS, which `run` also uses, or else ~/.cache/heedful-peers.
Environments with the same versions are kept.
"""

import argparse
import os
import subprocess
import venv
from pathlib import Path

TORCH = "torch==2.13.0"  # for every peer written in PyTorch: none may win or lose by it
PACKAGES = {  # the peer itself, then what it does not ask for and cannot do without
    "eole": ("eole==0.6.4", "aiohttp==3.14.5"),
    "huggingface": ("transformers==5.22.2", "accelerate==1.15.0"),
    "joeynmt": ("joeynmt==2.3.0", "importlib_metadata==10.2.0", "sentencepiece==0.2.0"),
    "marian": ("pymarian==1.12.42",),
}


def home() -> Path:
    """The directory of the environments and the corpus."""
    return Path(os.environ.get("HEEDFUL_PEERS", Path.home() / ".cache" / "heedful-peers")).absolute()


def program(peer: str, name: str, into: Path | None = None) -> Path:
    """A program of a peer's environment."""
    return (into or home()) / peer / ("Scripts" if os.name == "nt" else "bin") / name


def install(peer: str, into: Path) -> None:
    """Create the environment; PyTorch is pinned, so that the peer cannot replace it."""
    packages = PACKAGES[peer] if peer == "marian" else (TORCH, *PACKAGES[peer])
    done = into / peer / "installed"
    if done.exists() and done.read_text().split() == list(packages):
        return
    venv.create(into / peer, with_pip=True, clear=True, symlinks=os.name != "nt")
    subprocess.run([program(peer, "python", into), "-m", "pip", "install", "--quiet", *packages], check=True)
    done.write_text("\n".join(packages))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("peers", nargs="*", metavar="PEER", help=", ".join(PACKAGES))
    options.add_argument("--into", type=Path, default=home())
    given = options.parse_args()
    if unknown := set(given.peers) - set(PACKAGES):
        options.error(f"no peer is called {', '.join(sorted(unknown))}; known: {', '.join(PACKAGES)}")
    for peer in given.peers or PACKAGES:
        print(f"{peer}: {' '.join(PACKAGES[peer])}", flush=True)
        install(peer, given.into)


if __name__ == "__main__":
    main()
