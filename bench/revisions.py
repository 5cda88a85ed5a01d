"""Revisions of a git checkout: their commits, and work trees of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.errors import UsageError


@contextmanager
def checkout(revision: str, repository: Path, folder: Path) -> Iterator[Path]:
    """A work tree of its own for a revision, removed afterwards.

    Raises:
        UsageError: if git does not know the revision.
    """
    commit = commit_of(revision, repository)
    tree = folder / f"tree-{commit[:12]}"
    git(repository, "worktree", "add", "--detach", "--quiet", str(tree), commit)
    try:
        yield tree
    finally:
        git(repository, "worktree", "remove", "--force", str(tree))


def commit_of(revision: str, repository: Path) -> str:
    """The full name of a revision's commit.

    Raises:
        UsageError: if git does not know it.
    """
    try:
        return git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except UsageError as error:
        raise UsageError(f"revision must be one that git knows, got {revision!r}. {error}") from error


def unchanged(repository: Path, commit: str) -> bool:
    """Whether the working tree holds what a commit holds, and nothing that git would add to it."""
    return commit_of("HEAD", repository) == commit and not git(repository, "status", "--porcelain")


def has_changes(folder: Path) -> bool | None:
    """Whether files that git knows differ from the last commit; None outside a checkout, or without git."""
    try:
        return bool(git(folder, "status", "--porcelain", "--untracked-files=no"))
    except UsageError:
        return None


def git(repository: Path, *words: str) -> str:
    """What a command of git prints.

    Raises:
        UsageError: if git is not there or refuses.
    """
    try:
        done = subprocess.run(["git", "-C", str(repository), *words], capture_output=True, text=True, check=True)
    except OSError as error:
        raise UsageError(f"git must be installed to compare revisions, got {error}. Use --between instead.") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip()[:200] or f"exit code {error.returncode}"
        raise UsageError(
            f"git {words[0]} must succeed in {str(repository)!r}, got: {said}. Mend that first."
        ) from error
    return done.stdout.strip()
