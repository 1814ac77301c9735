"""`wukongs demo`: the main job on a social network that it makes itself.

Posts, likes, photos and positions stream in through local Spark; continuous queries report their windows; one-shot
queries before and after show how the stored graph has grown by what streamed in.
"""

from __future__ import annotations

import textwrap
import time

from wukongs.adapters.display import choose_display
from wukongs.adapters.lsbench_generator import (
    STREAM_NAMES,
    STREAM_NAMESPACE,
    GeneratedNetwork,
    NetworkSettings,
    generate_network,
)
from wukongs.adapters.run import Beside, run_config
from wukongs.adapters.run_config import (
    PipelineConfig,
    QueryConfig,
    RunConfig,
    StoredConfig,
    StreamConfig,
    TimestampedSource,
)
from wukongs.adapters.scratch import ScratchFolder
from wukongs.settings import Settings

BATCH_MS = 100
USERS, USERS_INTERPRETED = 1000, 40
"""So many users has a network by default, and where kernels are not compiled yet."""
PREFIXES = """PREFIX foaf: <http://xmlns.com/foaf/0.1/>
PREFIX sioc: <http://rdfs.org/sioc/ns#>
PREFIX sib: <http://www.ins.cwi.nl/sib/vocabulary/>
PREFIX sibu: <http://www.ins.cwi.nl/sib/user/>
PREFIX sibp: <http://www.ins.cwi.nl/sib/person/>
PREFIX stream: <http://www.ins.cwi.nl/sib/stream/>
PREFIX post: <http://www.ins.cwi.nl/sib/post/>
PREFIX comment: <http://www.ins.cwi.nl/sib/post/comment/>
PREFIX forum: <http://www.ins.cwi.nl/sib/forum/>
PREFIX photo: <http://www.ins.cwi.nl/sib/photoalbum/photo/>
"""
STORED = "<urn:x-wukongs:default>"
MEANINGS = {
    "liked_by_friend": "new posts that somebody likes whom the author knows",
    "L1": "all that one user posts",
    "L2": "the posts of one person, found by the stored account",
    "L3": "the posts of this person's friends",
    "L4": "two posts of one user with the same tag",
    "L5": "photos liked by a friend of somebody who is tagged in them",
    "L6": "posts in a channel that a friend of a subscriber likes",
}
"""The continuous queries in words: liked_by_friend, and L1 to L6 of LSBench."""


def continuous_queries(user: int, window: str = "[RANGE 1s STEP 100ms]") -> dict[str, str]:
    """Return the queries of the demo: liked by someone whom the author knows, and LSBench's L1 to L6."""
    posts, likes = f"FROM NAMED STREAM stream:posts {window}", f"FROM NAMED STREAM stream:post_likes {window}"
    photos = f"FROM NAMED STREAM stream:photos {window}"
    photo_likes = f"FROM NAMED STREAM stream:photo_likes {window}"
    bodies = {
        "liked_by_friend": f"""SELECT ?author ?friend ?post
{posts}
{likes}
FROM {STORED}
WHERE {{
  GRAPH stream:posts {{ ?author sioc:creator_of ?post }}
  ?author foaf:knows ?friend .
  GRAPH stream:post_likes {{ ?friend sib:like ?post }} }}""",
        "L1": f"SELECT ?p ?o {posts} WHERE {{ GRAPH stream:posts {{ sibu:u{user} ?p ?o }} }}",
        "L2": f"""SELECT ?post {posts} FROM {STORED} WHERE {{
  ?user sioc:account_of sibp:p{user} . GRAPH stream:posts {{ ?user sioc:creator_of ?post }} }}""",
        "L3": f"""SELECT ?friend ?post {posts} FROM {STORED} WHERE {{
  ?user sioc:account_of sibp:p{user} . ?user foaf:knows ?friend .
  GRAPH stream:posts {{ ?friend sioc:creator_of ?post }} }}""",
        "L4": f"""SELECT ?post1 ?post2 ?tag {posts} WHERE {{ GRAPH stream:posts {{
  ?post1 sib:hashtag ?tag . ?user sioc:creator_of ?post1 . ?user sioc:creator_of ?post2 . ?post2 sib:hashtag ?tag
  FILTER(?post1 != ?post2) }} }}""",
        "L5": f"""SELECT ?photo ?friend1 ?friend2 {photos} {photo_likes} FROM {STORED} WHERE {{
  GRAPH stream:photos {{ ?photo sib:usertag ?friend1 }}
  ?friend1 foaf:knows ?friend2 .
  GRAPH stream:photo_likes {{ ?friend2 sib:like ?photo }} }}""",
        "L6": f"""SELECT ?user ?friend ?post ?channel {posts} {likes} FROM {STORED} WHERE {{
  GRAPH stream:posts {{ ?channel sioc:container_of ?post }}
  ?user sioc:subscriber_of ?channel . ?user foaf:knows ?friend .
  GRAPH stream:post_likes {{ ?friend sib:like ?post }} }}""",
    }
    return {name: f"{PREFIXES}REGISTER QUERY {name} AS {body}" for name, body in bodies.items()}


def one_shot_queries(user: int) -> dict[str, str]:
    """Return the queries asked before and after: their answers grow by the tuples that streams leave in the stored
    graph."""
    bodies = {
        "all about one user": f"SELECT ?p ?o WHERE {{ sibu:u{user} ?p ?o }}",
        "posts of one user": f"""SELECT ?post WHERE {{
  ?user sioc:account_of sibp:p{user} . ?user sioc:creator_of ?post }}""",
        "posts of the friends": f"""SELECT ?post WHERE {{
  ?user sioc:account_of sibp:p{user} . ?user foaf:knows ?friend .
  ?friend sioc:creator_of ?post . ?post a sib:Post }}""",
        "positions (timing)": "SELECT ?user WHERE { ?user sib:trackedAt ?position }",
    }
    return {name: PREFIXES + body for name, body in bodies.items()}


def demo_config(network: GeneratedNetwork, speed: float = 1.0) -> RunConfig:
    """Return the run that the demo is. speed: event time per wall time; 0 is as fast as possible."""
    streams = tuple(
        StreamConfig(
            iri=STREAM_NAMESPACE + name,
            sources=(TimestampedSource(paths=(network.streams[name],)),),
            batch_ms=BATCH_MS,
            timing=name == "gps",
        )
        for name in STREAM_NAMES
    )
    queries = continuous_queries(network.busiest_user)
    asks = one_shot_queries(network.busiest_user)
    return RunConfig(
        file="the demo",
        settings=Settings.from_environment(),
        stored=(StoredConfig(file=network.stored),),
        streams=streams,
        queries=tuple(QueryConfig(name=name, text=text) for name, text in queries.items()),
        asks=tuple(QueryConfig(name=name, text=text) for name, text in asks.items()),
        pipeline=PipelineConfig(speed=speed, align_ms=1000),
    )


def whole_network(users: int, seconds: int, seed: int) -> NetworkSettings:
    return NetworkSettings(users=users, duration_ms=seconds * 1000, seed=seed, friends=min(40, users // 4))


def small_network(seconds: int, seed: int) -> NetworkSettings:
    """Return sizes with which interpreted kernels keep pace: 40 users who know 10 others, a tenth of the tuples."""
    whole = NetworkSettings()
    return NetworkSettings(
        users=USERS_INTERPRETED,
        duration_ms=seconds * 1000,
        seed=seed,
        friends=10,
        posts_per_s=whole.posts_per_s / 10,
        comments_per_s=whole.comments_per_s / 10,
        photos_per_s=whole.photos_per_s / 10,
        positions_per_s=whole.positions_per_s / 10,
    )


def main(settings: NetworkSettings, plain: bool, beside: Beside) -> int:
    """Run the demo; return the exit status. beside: serves the engine meanwhile."""
    display = choose_display(plain, each_window=False)
    began_s = time.monotonic()
    with ScratchFolder("demo") as folder:
        network = generate_network(folder, settings)
        display.phase(f"made a social network of {settings.users:,} users in {time.monotonic() - began_s:.1f} s")
        config = demo_config(network)
        display.phase(introduction(config))
        return run_config(config, display, beside=beside)


def introduction(config: RunConfig) -> str:
    """Say in words what the continuous queries ask, and show the text of the first."""
    first = config.queries[0].text.removeprefix(PREFIXES)
    lines = [f"{len(config.queries)} continuous queries, each over the last second, every 100 ms:"]
    lines += [f"  {query.name:<17}{MEANINGS[query.name]}" for query in config.queries]
    return "\n".join([*lines, "the first of them in C-SPARQL, without its prefixes:", textwrap.indent(first, "  ")])
