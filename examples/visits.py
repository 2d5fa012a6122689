"""Visits to a shop: clicks of a user without a pause of half an hour, with the user's name.

    moldau streams run examples/visits.py

Each visit comes once, when it is over. Clicks that cannot be read go to a topic of dead letters.
"""

from dataclasses import dataclass
from datetime import datetime

from moldau.streams import Session, Streams, final, json, minutes, seconds


@dataclass
class Click:
    user: str
    page: str
    at: datetime
    seconds: float = 0.0


@dataclass
class User:
    name: str
    city: str | None = None


app = Streams("visits")
app.dead_letters("broken-clicks")

clicks = app.stream("clicks", value=json(Click), time="at")
users = app.table("users", value=json(User))

visits = (
    clicks.group_by("user")
    .windowed(Session(minutes(30), grace=seconds(10)), emit=final)
    .aggregate(pages="count(*)", seconds="sum(seconds)", last="max(at)", as_="visits")
)
(
    visits.to_stream()
    .map_values(user="key", began="window.start", ended="last", pages="pages", seconds="seconds")
    .select_key("user")
    .left_join(users, name="coalesce(name, 'unknown')", city="city", began="began", ended="ended", pages="pages")
    .to("visits")
)

if __name__ == "__main__":
    app.run()
