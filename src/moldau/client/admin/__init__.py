"""Administration of a cluster as a library: values in, values out; prints nothing and knows no command line.

`clients` has what goes through librdkafka, `cluster` the requests that librdkafka lacks. Failures are `errors`.
"""
