"""The schema registry: Confluent's REST interface over state in the topic `_schemas`.

`core` is pure: records, state, decisions and answers. The rest is the rim: the topic, the election of a writer, HTTP.
"""
