"""Revenue of each country in each minute, with orders that come late.

    moldau streams run examples/revenue.py

Orders name a user, and users a country. A minute is updated while it lasts and for half a minute longer; later orders
are dropped and counted.
"""

from moldau.streams import Streams, Tumbling, json, minutes, seconds

app = Streams("revenue")

orders = app.stream("orders", value=json("user string, amount double, at timestamp"), time="at")
users = app.table("users", value=json("name string, country string"))

revenue = (
    orders.filter("amount > 0")
    .join(users, on="user", amount="amount", country="country")
    .group_by("country")
    .windowed(Tumbling(minutes(1), grace=seconds(30)))
    .aggregate(total="sum(amount)", orders="count(*)", as_="revenue")
)
revenue.to("revenue-by-country")

if __name__ == "__main__":
    app.run()
