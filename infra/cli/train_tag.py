"""`earshot models train-tag`: teach a model one more sound by examples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli import local
from infra.cli.models import models

if TYPE_CHECKING:
    from infra.lab.training.embeddings import Embedded
    from infra.teaching.tags import LearntTag


@models.command("train-tag")
def train_tag(
    name: Annotated[str, typer.Argument(help="Name of the tag, for example Espresso_machine.")],
    positives: Annotated[Path, typer.Option(help="Directory of 10 or more recordings with the sound.")],
    negatives: Annotated[
        Path | None, typer.Option(help="Directory of recordings without the sound, best from the place of use.")
    ] = None,
    category: Annotated[str, typer.Option(help="Category that clients see.")] = "Custom",
    model: local.Model = None,
    false_per_minute: Annotated[
        float, typer.Option(min=0, help="False events a minute of busy audio that set the operating point.")
    ] = 0.3,
    replace: Annotated[bool, typer.Option("--replace", help="Learn an existing tag again.")] = False,
    use: Annotated[bool, typer.Option("--use", help="Use the model at once, without a restart.")] = False,
) -> None:
    """Teach a model a sound by recordings of it: 5 s each will do, and no GPU is needed.

    The model stays as it is; a new one with the tag is added beside it. The printed figures were measured on
    held-out recordings. The bundled model brings recordings of other sounds to learn against; your own negatives
    help most if they can be mistaken for the sound.
    """
    import os
    import tempfile

    # With small matrices a second thread costs more than it gains, much more on a busy machine.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from infra import settings
    from infra.lab.training import added_tag
    from infra.lab.training.embeddings import embed, embed_contexts
    from infra.models.registry import Registry
    from infra.teaching import tags
    from infra.teaching.background import CONTEXTS
    from infra.teaching.names import check_name
    from infra.teaching.negatives import gather

    engine, directory = local.engine(model)
    known = [] if replace else [tag.name for tag in engine.manifest.tags]
    check_name(name, known, "learn it again with --replace")
    registry = Registry(settings.load().data)
    with tempfile.TemporaryDirectory() as scratch:
        if engine.second is None:
            with_sound = _embedded(partial(embed, engine), positives)
            without = _embedded(partial(embed, engine), negatives) if negatives else []
            learnt = tags.learn_tag(with_sound, gather(engine.manifest, without), false_per_minute)
            added_tag.write(directory, engine.manifest, name, category, learnt.head, len(with_sound), Path(scratch))
            _print(name, learnt)
        else:
            heads, gate = {}, 1.0
            for kind in CONTEXTS:
                context = partial(embed_contexts, engine, recording=kind == "recording")
                contexts = _embedded(context, positives)
                others = _embedded(context, negatives) if negatives else []
                learnt = tags.learn_tag(contexts, gather(engine.manifest, others, kind), false_per_minute)
                heads[kind], gate = learnt.head, min(gate, *(one.first for one in contexts))
                _print(f"{name} in {kind}s", learnt)
            added_tag.write_second(
                directory, engine.manifest, name, category, heads, gate, len(contexts), Path(scratch)
            )
        entry = registry.add(scratch)
    typer.echo(f"added {entry.model_id}")
    if use:
        registry.use(entry.model_id)
        typer.echo("in use: new sessions get it")
    else:
        typer.echo(f"earshot models use {entry.model_id} puts it into use")


def _embedded(embed: Callable[[Path], Embedded], directory: Path) -> list[Embedded]:
    from infra.lab.training.embeddings import embed_folder

    windows, skipped = embed_folder(embed, directory)
    for one in skipped:
        typer.echo(f"skipped {directory / one.name}: {one.cause}", err=True)
    if skipped:
        typer.echo(f"{directory}: {len(skipped)} files skipped", err=True)
    return windows


def _print(name: str, learnt: LearntTag) -> None:
    figures = learnt.figures
    typer.echo(f"{name}: learnt from {figures.clips} recordings, each judged by a head learnt without it")
    typer.echo(f"  found            {figures.recall:.0%} of them; average precision {figures.average_precision:.2f}")
    for where, false, minutes in (
        ("your negatives", figures.false_on_given, figures.given_minutes),
        ("the background", figures.false_on_background, figures.background_minutes),
    ):
        if minutes:
            typer.echo(f"  false events     {false:.2f} a minute in {minutes:.1f} minutes of {where}")
    if learnt.left_out:
        typer.echo(f"  left out         {', '.join(learnt.left_out)}: in the background, and the same to the model")
