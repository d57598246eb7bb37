"""The calls about single records of a group, and about its dead letters.

in_flight_api     records in flight, page by page    ──▶ all leaders
look_up_api       one record, by offset or key       ──▶ in_flight_api, dead_letters_api, the record log
at_leader_api     the window, one record by hand     ──▶ the leader of the share-partition
redrive_api       dead letters back to their topics  ┐
dead_letters_api  lists and drops dead letters       ┴▶ dead_letters ──▶ the record log
"""
