"""Objects by path, on a local disk, on S3 or in memory. The only door to boto3 and obstore.

objects         the operations that every store has; start here         opening       which store a path or URI names
local           files below a folder                                    memory        for tests
s3              the same operations on S3
s3_clients      one process's clients for a bucket                      s3_errors     boto3's and obstore's become ours
s3_access       settings, credentials, clients of boto3                 s3_objects    requests by obstore
s3_parts        a multipart upload                                      upload        sends a file while it is written
fetched_file    reads ranges of a remote file ahead                     direct_file   writes past the page cache
retries         stores that are slow, lose requests or are busy         first_answer  reports a wrong endpoint soon
throttle        leaves room for others                                  traffic       counts requests
store_clock     the present time, for ages of objects                   identity      which object a name means
certain_put     repeats put if absent until the winner is known         numbered      a folder of numbers, put if absent
checksummed     JSON documents with the checksum of their body          cold_classes  objects that cost a fee to read
replacing       replaces an object that several writers change
"""
