"""Acting: an actor runs the network, a rule turns its outputs into actions; noise, memories of recurrent networks,
policies.
"""
