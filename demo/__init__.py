"""`make demo`: a broker, orders that keep coming, a Spark pipeline that adds them up, the result in the terminal."""
